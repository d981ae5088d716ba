"""What a measurement found: the content of ``metrics.json``, and the values, scores and pictures beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from lightning.pytorch.utilities import rank_zero_warn
from PIL.Image import Image
from torch import Tensor

from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.run.pictures import drawing
from protometry.datamodules.sample import sample_key
from protometry.datamodules.transforms.continuity import codec_versions
from protometry.evaluation.explained.explained_model import ExplainedModel, no_pages
from protometry.evaluation.measure import Measured
from protometry.evaluation.pictures import Evaluated, evaluation_pictures
from protometry.evaluation.protocol import describe
from protometry.evaluation.request import Request
from protometry.evaluation.results.schema import SCHEMA
from protometry.evaluation.results.scores_file import UnitScores
from protometry.evaluation.results.values_csv import NAMED_BY, Rows, by_kind, values_text
from protometry.evaluation.trained_model import TrainedModel
from protometry.explanations.views import png


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
    def files(self) -> dict[str, str | bytes]:
        """The content of the files beside ``metrics.json``, by name."""
        tables = {f"{name}.csv": values_text(rows, NAMED_BY[name]) for name, rows in self.values.items()}
        scores = {"scores.csv": self.scores.text} if self.scores else {}
        return tables | scores | {f"{name}.png": png(picture) for name, picture in self.pictures.items()}

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


def findings_of(request: Request, measured: Measured) -> Findings:
    """Name what the engine of a request has measured, and draw its pictures."""
    trained, evaluation, this_pass = request.trained, request.engine.evaluation, request.engine.this_pass
    module, datamodule, dataset = measured.model, measured.datamodule, measured.dataset
    result = {
        "schema": SCHEMA,
        **request.identity,
        **describe(request, module.backbone.name, datamodule, codec_versions()),
        "training": trained.training,
        "metrics": evaluation.metrics,
        "skipped": evaluation.skipped,
        "timing": {
            "seconds": measured.seconds,
            "images": len(dataset),
            "images_per_second": len(dataset) / measured.seconds,
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    }
    names = {"classes": trained.class_names, "concepts": datamodule.tables.concept_names}
    values = by_kind(evaluation.images, evaluation.predictions, evaluation.items, dataset.sample_ids, names)
    reason = no_pages(this_pass.observer.explainer)
    explainer = None if reason else this_pass.observer.explainer  # pictures do not need one
    concepts = _concept_names(trained, module) if request.other else None
    explained = ExplainedModel(module, datamodule, explainer, class_names=trained.class_names, concept_names=concepts)
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
    scores = _scores(evaluation.scores, values["images"], explained)
    return Findings(result, values, pictures, explained, reason, scores)


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
