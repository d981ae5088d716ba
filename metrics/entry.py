"""An entry in the table of metrics: how to build one, what it needs and which record it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from metrics.alignment.misalignment import SpatialMisalignment
from metrics.base import SummaryMetric
from metrics.facts import Facts
from metrics.funnybirds.funnybirds_scores import FunnyBirdsScores

AnyMetric = SummaryMetric | SpatialMisalignment | FunnyBirdsScores


@dataclass(frozen=True)
class MetricEntry:
    """How to build a metric and what it needs.

    Args:
        build: makes the metric from the facts.
        needs: names in ``NEEDS`` or of optional fields of the data set; ``"a|b"`` for either of two fields.
        view: the record it reads: that of the clean image, or of a perturbed one; ``"training"`` for that of the
            training images through the evaluation transform, in place of the evaluated ones.
        part: which entry of the metric's summary the key stands for, where it has several.
        shared: keys with the same value stand for parts of one and the same metric; None for a metric of its own.
        full: whether it is only part of the suite ``<family>_full``.
    """

    build: Callable[[Facts], AnyMetric]
    needs: tuple[str, ...] = ()
    view: str = "clean"
    part: str | None = None
    shared: str | None = None
    full: bool = False
