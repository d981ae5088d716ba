"""A model in a folder of its own: written from a run, and explained without the data of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from protometry.callbacks.run.training_record import recorded_training
from protometry.datamodules.photos.one_photo import Framing
from protometry.datamodules.sample import ClassTables
from protometry.evaluation.explained.explained_model import ExplainedModel
from protometry.evaluation.explained.stored_sources import StoredSources, write_sources
from protometry.evaluation.export.model_card import model_card
from protometry.explanations import Explainer, choose_explainer
from protometry.explanations.choice import description
from protometry.lightning_modules.contract import InterpretableModel
from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.command_line.first_look import MODEL_FILE
from protometry.run_folder.command_line.messages import counted
from protometry.run_folder.command_line.user_path import user_path
from protometry.run_folder.model_folder import (
    CARD,
    REMEDY,
    ModelDescription,
    new_folder,
    read_description,
    write_exported,
)

if TYPE_CHECKING:
    from protometry.evaluation.results.metrics_json import Result
    from protometry.evaluation.trained_model import TrainedModel

_SMALL = 32  # longer side of pictures that are drawn for their boxes alone


def export(model: Any, datamodule: Any, folder: str | Path) -> None:
    """Write a trained model into a folder that explains photos without its data.

    ::

        trainer.fit(model, data)
        export(model.eval(), data, "model/")
        answer = PhotoExplainer("model/")("photo.jpg")

    Args:
        model: in evaluation mode.
        datamodule: of the data it was trained on, whose photos stand for its units.
        folder: a new or an empty one; see :mod:`protometry.run_folder.model_folder` for what it holds.

    Raises:
        FileExistsError: if the folder holds anything.
        FileNotFoundError: if the data are not at hand.
    """
    with new_folder(user_path(folder)) as unfinished:
        _write(ExplainedModel(model, datamodule, size=_SMALL), unfinished)


def export_run(trained: TrainedModel, folder: Path) -> None:
    """The same for a checkpoint, with its training and its results on the card."""
    with new_folder(folder) as unfinished:
        training = recorded_training(trained.path, trained.checkpoint)
        _write(trained.explained(size=_SMALL), unfinished, training, trained.result(of_equal=True))


def _write(
    explained: ExplainedModel, folder: Path, training: Mapping[str, Any] | None = None, result: Result | None = None
) -> None:
    """Write everything; pictures that were drawn for their boxes are not kept."""
    model: Any = explained.model
    framing, threshold = Framing.of(explained.datamodule), explained.threshold
    best = explained.sources.best_similarities
    facts = {
        "version": _version(),
        "model": {"class_path": _class_path(type(model)), "init_args": _arguments(model.hparams)},
        "class_names": explained.class_names,
        "decision_threshold": None if threshold is None else float(threshold),
        "image_size": framing.image_size,
        "geometry": framing.geometry,
        "variant": framing.variant,
        "crop": framing.crop,
        "concept_names": explained.concept_names,
        "part_names": explained.datamodule.tables.part_names,
        "explainer": explained.explained_by,
        "similarities": None if best is None else best.tolist(),
        "sources": write_sources(explained.sources, folder),
        "accuracy": _accuracy(result),
    }
    write_exported(folder, model.state_dict(), facts)
    data = result.dataset if result else explained.datamodule.dataset_name
    write_atomic(folder / CARD, model_card(model, facts, training or {}, data, result))


def _class_path(kind: type) -> str:
    """Where a class is imported from; ours from their package, whatever their files are called."""
    ours = "protometry.lightning_modules"
    module = ours if kind.__module__.startswith(f"{ours}.") else kind.__module__
    return f"{module}.{kind.__qualname__}"


def _arguments(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a model without the file of pretrained weights, which is not read again."""
    backbone = stored.get("backbone")
    return {**stored, "backbone": {**backbone, "weights": None}} if isinstance(backbone, dict) else dict(stored)


def _version() -> str | None:
    try:
        return version("protometry")
    except PackageNotFoundError:
        return None


def _accuracy(result: Result | None) -> dict[str, Any] | None:
    accuracy = result and result.metrics.get("general/accuracy")
    if not result or not accuracy:
        return None
    return {"value": accuracy.value, "ci95": accuracy.ci95, "n": accuracy.n, "split": result.split}


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


def data_of(folder: Path) -> ExportedData:
    """What an exported model knows of its data."""
    described = read_description(folder)
    height, width = described.image_size
    tables = ClassTables(part_names=described.part_names, concept_names=described.concept_names)
    settings: Any = {"geometry": described.geometry, "variant": described.variant, "crop": described.crop}
    return ExportedData((height, width), **settings, tables=tables)


def explained_of(
    folder: Path, model: InterpretableModel, explainer: Explainer | None = None, size: int = 144
) -> ExplainedModel:
    """An exported model, for pages and pictures of photos.

    Raises:
        ValueError: if the explainer is not the one that drew the boxes of the exported photos, or photos of units are
            missing.
    """
    described, data = read_description(folder), data_of(folder)
    _check_sources(described, model, folder)
    chosen = choose_explainer(explainer, model)
    if described.sources is not None and description(chosen) != described.explainer:
        raise ValueError(
            f"Expected argument `explainer` to be {described.explainer}, which drew the boxes of the photos in "
            f"{folder}, but got {description(chosen)}. Leave it out, or explain from the checkpoint of the run."
        )
    sources = StoredSources(folder, described, size)
    return ExplainedModel(model, data, chosen, size, described.class_names, sources=sources)


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
