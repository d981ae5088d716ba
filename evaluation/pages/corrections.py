"""How a decision changes if a person corrects its concepts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch

from protometry.evaluation.explained.additive import with_scores
from protometry.evaluation.explained.explained_model import ExplainedImage, ExplainedModel
from protometry.lightning_modules.contract import InterpretableModel, Intervenable
from protometry.metrics.primitives.truth import truth_of

SHOWN = 8


@dataclass(frozen=True)
class CorrectionEffect:
    """A correction and its effect.

    Args:
        said: probability of the concept by the model, None for several at once.
        is_true: whether the image shows it, None for several at once; concepts that are unknown are not corrected.
        predicted: the class then.
    """

    name: str
    said: float | None
    is_true: bool | None
    predicted: str
    logit: float


def can_correct(model: InterpretableModel) -> TypeGuard[Intervenable]:
    """Whether a person can correct the concepts of a model: what they become is known."""
    return isinstance(model, Intervenable) and (model.values == "binary" or bool(model.percentiles.isfinite().all()))


def annotated_concepts(explained: ExplainedModel, sample: Mapping[str, Any]) -> torch.Tensor | None:
    """``(U,)`` what the data say of the concepts of a model in an image, NaN where unknown; None without any."""
    concepts = explained.units.concepts
    return None if concepts is None or "concepts" not in sample else truth_of(sample, "concepts")[concepts.cpu()]


@torch.no_grad()
def corrections(explained: ExplainedModel, image: ExplainedImage, sample: Mapping[str, Any]) -> list[CorrectionEffect]:
    """The corrections of the concepts that the model gets most wrong, each alone, then of all concepts at once.

    Raises:
        ValueError: if correcting nothing changes the decision.
    """
    model, annotated = explained.model, annotated_concepts(explained, sample)
    if annotated is None or annotated.isnan().all() or not can_correct(model):
        return []
    scores = image.output.scores
    truth = annotated.to(scores.device)[None]
    truth, known = truth == 1, ~truth.isnan()
    nothing = model.intervene(scores, truth, torch.zeros_like(truth))
    if not torch.equal(nothing, scores):
        raise ValueError(f"Expected no correction to change nothing on the page of {image.sample_id}, but it does.")
    said = model.concept_probabilities(scores)[0]
    errors = (said - truth[0].float()).abs().masked_fill(~known[0], -1)
    order = errors.argsort(descending=True, stable=True)[:SHOWN].tolist()
    wrong = [unit for unit in order if known[0, unit] and (float(said[unit]) > 0.5) != bool(truth[0, unit])]
    rows = []
    for unit in wrong:
        mask = torch.zeros_like(truth)
        mask[0, unit] = True
        name, logit = _decided(explained, image, model.intervene(scores, truth, mask))
        rows.append(CorrectionEffect(explained.unit_name(unit), float(said[unit]), bool(truth[0, unit]), name, logit))
    name, logit = _decided(explained, image, model.intervene(scores, truth, known))
    what = "all concepts" if known.all() else f"all {int(known.sum())} concepts that are known"
    return [*rows, CorrectionEffect(what, None, None, name, logit)]


def _decided(explained: ExplainedModel, image: ExplainedImage, scores: torch.Tensor) -> tuple[str, float]:
    logits = with_scores(explained.model, image.output, scores).logits[0]
    label = int(logits.argmax())
    return explained.class_names[label], float(logits[label])
