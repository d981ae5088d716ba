"""One evaluation, from the checkpoint to all its results."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, cast

import torch
from lightning import seed_everything
from lightning.pytorch.utilities import rank_zero_warn
from PIL.Image import Image
from torch import Tensor

from protometry.callbacks.evaluation.interpretability import Interpretability
from protometry.callbacks.forward.evaluation_mode import evaluation_mode, full_precision
from protometry.callbacks.run.drawing import drawing
from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.sample import sample_key
from protometry.datamodules.transforms.continuity import codec_versions
from protometry.evaluation.explained.explained_model import ExplainedModel, no_pages
from protometry.evaluation.hardware import Hardware
from protometry.evaluation.pictures import Evaluated, evaluation_pictures
from protometry.evaluation.protocol import describe, refuse_unfit
from protometry.evaluation.request import Request
from protometry.evaluation.results.schema import SCHEMA
from protometry.evaluation.results.scores_file import UnitScores
from protometry.evaluation.results.values_csv import Rows, by_kind
from protometry.evaluation.trained_model import TrainedModel
from protometry.evaluation.trainer import quiet_trainer


@dataclass(frozen=True)
class Findings:
    """The results of an evaluation.

    Args:
        values: of the files of values, by name.
        no_pages: why the explainer of the evaluation makes no pages, or None.
        scores: of the units on every image, if requested.
    """

    result: dict[str, Any]
    values: dict[str, Rows]
    pictures: dict[str, Image]
    explained: ExplainedModel
    no_pages: str | None = None
    scores: UnitScores | None = None

    @property
    def index(self) -> dict[str, Any]:
        """What the rows and columns of the maps of all units are."""
        images, explained = self.values["images"], self.explained
        units = explained.units.active.nonzero().flatten().tolist()
        return {
            "split": self.result["split"],
            "sample_ids": list(images),
            "labels": [row["label"] for row in images.values()],
            "units": units,
            "names": [explained.unit_name(unit) for unit in units],
        }


def measure(request: Request, hardware: Hardware, other: ImageDataModule | None = None) -> Findings:
    """Run the engine of a request.

    Raises:
        ValueError: if the data do not fit the model or the request.
    """
    seed_everything(request.engine.seed, verbose=False)
    trained = request.trained
    module, datamodule = trained.model(request.inference), other or trained.data()
    datamodule.configure_loaders(split=request.split, limit=request.limit)
    refuse_unfit(request, module.num_classes, datamodule)
    trainer = quiet_trainer(hardware, trained.run_folder, request.engine)
    request.engine.keep_scores = request.scores
    start = time.perf_counter()
    with full_precision(trainer.strategy.root_device):
        trainer.test(module, datamodule, verbose=False)
    seconds = time.perf_counter() - start
    dataset, evaluation = cast(Any, datamodule.test_dataloader().dataset), request.engine.evaluation
    result = {
        "schema": SCHEMA,
        **request.identity,
        **describe(request, module.backbone.name, datamodule, codec_versions()),
        "training": trained.training,
        "metrics": evaluation.metrics,
        "skipped": evaluation.skipped,
        "timing": {
            "seconds": seconds,
            "images": len(dataset),
            "images_per_second": len(dataset) / seconds,
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    }
    classes = trained.class_names
    names = {"classes": classes, "concepts": datamodule.tables.concept_names}
    values = by_kind(evaluation.images, evaluation.predictions, evaluation.items, dataset.sample_ids, names)
    this_pass = request.engine.this_pass
    reason = no_pages(this_pass.observer.explainer)
    explainer = None if reason else this_pass.observer.explainer  # pictures do not need one
    concepts = _concept_names(trained, module) if other else None
    explained = ExplainedModel(module, datamodule, explainer, class_names=classes, concept_names=concepts)
    evaluated = Evaluated(
        explained,
        metrics=evaluation.metrics,
        items=evaluation.items,
        split=request.split,
        dataset=dataset,
        named=this_pass.named_units(),
        class_explainer=this_pass.observer.class_explainer,
    )
    pictures: dict[str, Image] = {}
    with evaluation_mode(module), drawing("pictures of the evaluation"):
        pictures = evaluation_pictures(evaluated)
    return Findings(
        result=result,
        values=values,
        pictures=pictures,
        explained=explained,
        no_pages=reason,
        scores=_scores(evaluation.scores, values["images"], explained),
    )


def _concept_names(trained: TrainedModel, module: Any) -> list[str]:
    """Of the data that a model with concepts was trained on; none if they are gone."""
    if module.units().concepts is None:
        return []
    try:
        names: list[str] = replace(trained, data_changes={}).data().tables.concept_names
    except (OSError, ValueError) as error:
        rank_zero_warn(f"The concepts of the model have numbers instead of names, since its own data are gone: {error}")
        return []
    return names


def _scores(
    keyed_scores: tuple[list[int], Tensor] | None, images: Rows, explained: ExplainedModel
) -> UnitScores | None:
    """Sorted like the rows of images."""
    if keyed_scores is None:
        return None
    row_of = {key: row for row, key in enumerate(keyed_scores[0])}
    values = keyed_scores[1][[row_of[sample_key(name)] for name in images]].numpy()
    labels = [str(row["label"]) for row in images.values()]
    units = [explained.unit_name(unit) for unit in explained.units.active.nonzero().flatten().tolist()]
    return UnitScores(list(images), labels, units, values)


def applicable(trained: TrainedModel, engine: Interpretability, split: str) -> tuple[list[str], dict[str, str]]:
    """The part of a suite that applies to a model on the data of its run, as in an evaluation.

    Returns:
        Keys that apply, and the reason by key for those that do not.
    """
    module, datamodule = trained.model(), trained.data()
    with evaluation_mode(module), torch.inference_mode():
        skipped = engine.decide(module, datamodule, split, engine.suite)
    return list(engine.this_pass.metrics), skipped
