"""A model in a folder of its own: written from a run, and explained without the data of the run."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from protometry.callbacks.run.training_record import recorded_training
from protometry.datamodules.photos.one_photo import Framing
from protometry.datamodules.sample import ClassTables
from protometry.evaluation.model_card import model_card, with_results
from protometry.explanations import Explainer, choose_explainer
from protometry.explanations.choice import description
from protometry.lightning_modules.contract import InterpretableModel
from protometry.reports.explained_model import ExplainedModel
from protometry.reports.stored_sources import StoredSources, write_sources
from protometry.run_folder.model_folder import CARD, new_folder, read_description, write_exported

if TYPE_CHECKING:
    from protometry.evaluation.trained_model import TrainedModel
    from protometry.reports.results.metrics_json import Result

_SMALL = 32  # longer side of pictures that are drawn for their boxes alone


def export(trained: TrainedModel, folder: Path) -> None:
    """Write the folder of a model, which explains photos without the data of its run.

    Raises:
        FileExistsError: if the folder is there and holds anything.
        FileNotFoundError: if the data of the run are not at hand.
    """
    with new_folder(folder) as unfinished:
        explained = trained.explained(size=_SMALL)
        model: Any = explained.model
        stored = trained.checkpoint["hyper_parameters"]
        framing, threshold = Framing.of(explained.datamodule), explained.threshold
        best = explained.sources.best_similarities
        facts = {
            "version": _version(),
            "model": {
                "class_path": stored["_class_path"],
                "init_args": {name: value for name, value in stored.items() if not name.startswith("_")},
            },
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
            "sources": write_sources(explained.sources, unfinished),
            "accuracy": _accuracy(result := trained.result()),
        }
        write_exported(unfinished, model.state_dict(), facts)
        training = recorded_training(trained.path, trained.checkpoint)
        card = model_card(model, facts, training, result.dataset if result else explained.datamodule.dataset_name)
        (unfinished / CARD).write_text(with_results(card, result), "utf-8")


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

    def dataset(self, split: str) -> NoReturn:
        """Refused.

        Raises:
            ValueError: since there are no images.
        """
        raise ValueError(
            f"Expected a checkpoint of the run to show its {split} images, but got an exported model, which explains "
            "photos of yours only (`--image`)."
        )


def explained_of(
    folder: Path, model: InterpretableModel, explainer: Explainer | None = None, size: int = 144
) -> ExplainedModel:
    """An exported model, for pages and pictures of photos.

    Raises:
        ValueError: if the explainer is not the one that drew the boxes of the exported photos.
    """
    described = read_description(folder)
    chosen = choose_explainer(explainer, model)
    if described.sources is not None and description(chosen) != described.explainer:
        raise ValueError(
            f"Expected argument `explainer` to be {described.explainer}, which drew the boxes of the photos in "
            f"{folder}, but got {description(chosen)}. Leave it out, or explain from the checkpoint of the run."
        )
    height, width = described.image_size
    tables = ClassTables(part_names=described.part_names, concept_names=described.concept_names)
    settings: Any = {"geometry": described.geometry, "variant": described.variant, "crop": described.crop}
    data = ExportedData((height, width), **settings, tables=tables)
    sources = StoredSources(folder, described.sources, described.similarities, size)
    return ExplainedModel(model, data, chosen, size, described.class_names, sources=sources)
