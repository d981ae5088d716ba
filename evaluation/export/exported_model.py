"""The folder of an exported model, which explains photos without the data of its run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from protometry.datamodules.photos.one_photo import Framing
from protometry.datamodules.sample import ClassTables
from protometry.evaluation.explained.explained_model import ExplainedModel
from protometry.evaluation.explained.stored_sources import StoredSources
from protometry.evaluation.trained_model import TrainedModel
from protometry.explanations import Explainer, choose_explainer
from protometry.explanations.choice import description
from protometry.lightning_modules import load_model
from protometry.lightning_modules.contract import InterpretableModel
from protometry.run_folder.command_line.first_look import MODEL_FILE, is_model_folder
from protometry.run_folder.command_line.messages import counted
from protometry.run_folder.layout import folder_of_run
from protometry.run_folder.model_folder import REMEDY, ModelDescription, read_description


def open_model(
    path: str | Path, data_root: str | None = None, allow_classes: str | None = None
) -> TrainedModel | ExportedModel:
    """A checkpoint or the folder of an exported model, as a command line names it."""
    trained = TrainedModel.of_flags(path, data_root, allow_classes)
    return ExportedModel(trained.path, trained.allow_classes) if is_model_folder(trained.path) else trained


@dataclass(frozen=True)
class ExportedData(Framing):
    """What an exported model knows of its data: names, and how photos become its images."""

    tables: ClassTables = field(default_factory=ClassTables)
    eval_batch_size: int = 64
    num_workers: int = 0

    def dataset(self, split: str) -> NoReturn:
        """Refused.

        Raises:
            ValueError: since there are no images.
        """
        raise ValueError(
            f"Expected a checkpoint of the run to show its {split} images, but got an exported model, which explains "
            "photos of yours only (`--image`)."
        )


class ExportedModel:
    """An exported model, which explains photos and predicts them as a :class:`.TrainedModel` does.

    Args:
        path: of the folder.
        allow_classes: packages whose classes it may name besides this project's.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if its description is damaged.
    """

    def __init__(self, path: Path, allow_classes: Sequence[str] = ()) -> None:
        self.path, self.allow_classes = path, allow_classes
        self.run_folder = folder_of_run(path)
        self.described = read_description(path)
        self.class_names = self.described.class_names

    def model(self, inference: str | None = None) -> Any:
        """The model, in evaluation mode."""
        changes = {} if inference is None else {"inference": inference}
        return load_model(self.path, allow_classes=self.allow_classes, **changes)

    def data(self) -> Any:
        """What it knows of its data."""
        described, (height, width) = self.described, self.described.image_size
        tables = ClassTables(part_names=described.part_names, concept_names=described.concept_names)
        settings: Any = {"geometry": described.geometry, "variant": described.variant, "crop": described.crop}
        return ExportedData((height, width), **settings, tables=tables)

    def explained(self, explainer: Explainer | None = None, size: int = 144) -> ExplainedModel:
        """For pages and pictures of photos.

        Raises:
            ValueError: if the explainer is not the one that drew the boxes of the exported photos, or photos of units
                are missing.
        """
        model, described = self.model(), self.described
        _check_sources(described, model, self.path)
        chosen = choose_explainer(explainer, model)
        if described.sources is not None and description(chosen) != described.explainer:
            raise ValueError(
                f"Expected argument `explainer` to be {described.explainer}, which drew the boxes of the photos in "
                f"{self.path}, but got {description(chosen)}. Leave it out, or explain from the checkpoint of the run."
            )
        sources = StoredSources(self.path, described, size)
        return ExplainedModel(model, self.data(), chosen, size, described.class_names, sources=sources)


def _check_sources(described: ModelDescription, model: InterpretableModel, folder: Path) -> None:
    """Refuse a description whose photos stand for other units than the active ones."""
    units = model.units()
    expected = None if units.kind == "class" else units.active.nonzero().flatten().tolist()
    stored = None if described.sources is None else sorted(source.unit for source in described.sources)
    if stored != expected:
        wanted, got = ("none" if each is None else counted(len(each), "unit") for each in (expected, stored))
        raise ValueError(
            f"Expected `sources` in {folder / MODEL_FILE} to be those of the active units, {wanted}, each once, but "
            f"got {got}. {REMEDY}"
        )
