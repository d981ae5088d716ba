"""A trained model written into a folder of its own."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from protometry.datamodules.photos.one_photo import Framing
from protometry.evaluation.explained.explained_model import ExplainedModel
from protometry.evaluation.explained.stored_sources import write_sources
from protometry.evaluation.export.model_card import model_card
from protometry.evaluation.results.metrics_json import Result
from protometry.evaluation.trained_model import TrainedModel
from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.command_line.user_path import user_path
from protometry.run_folder.model_folder import CARD, new_folder, write_exported

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
        _write(trained.explained(size=_SMALL), unfinished, trained.training, trained.result(of_equal=True))


def _write(
    explained: ExplainedModel, folder: Path, training: Mapping[str, Any] | None = None, result: Result | None = None
) -> None:
    """Write everything; pictures that were drawn for their boxes are not kept."""
    model: Any = explained.model
    framing, threshold = Framing.of(explained.datamodule), explained.threshold
    neighbours = explained.sources.neighbours
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
        "sources": write_sources(explained.sources, folder),
        "accuracy": _accuracy(result),
    }
    write_exported(folder, model.state_dict(), facts, neighbours and neighbours.embeddings)
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
