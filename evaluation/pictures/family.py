"""What a family of metrics brings: how its pictures are drawn, what they show, and the page they are on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image
from torch import Tensor

from protometry.evaluation.explained.explained_model import ExplainedModel
from protometry.explanations import Explainer


@dataclass(frozen=True)
class Evaluated:
    """A model and the results of its evaluation.

    Args:
        explained: what was evaluated, in evaluation mode.
        metrics: by key, as in ``metrics.json``.
        items: "units", "classes" or "concepts" -> key -> value of each, NaN where undefined.
        named: ``(M,)`` int64 units that stand for concepts, and the concept of each; None without any.
        class_explainer: makes the maps of classes that were evaluated, or None.
    """

    explained: ExplainedModel
    metrics: Mapping[str, Mapping[str, Any]]
    items: Mapping[str, Mapping[str, Sequence[float]]]
    split: str
    dataset: Any
    named: tuple[Tensor, Tensor] | None = None
    class_explainer: Explainer | None = None


@dataclass(frozen=True)
class PictureFamily:
    """The pictures of a family of metrics.

    Args:
        draw: name -> picture, of those that an evaluation has something to show on.
        captions: name -> what the picture shows, in the order in which a report shows them.
        page: heading of the family's own page of a report; None for the page of all figures.
    """

    draw: Callable[[Evaluated], dict[str, Image.Image]]
    captions: Mapping[str, str]
    page: str | None = None
