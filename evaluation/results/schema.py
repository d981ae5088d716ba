"""The schema of ``metrics.json``: what an evaluation writes, and what every reader may rely on."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from protometry.metrics.base import PartsMetric
from protometry.metrics.suite import ENTRIES
from protometry.run_folder.schema import Record

SCHEMA = 1
ROUNDING = 1e-9  # of sums of many values
Count = Annotated[int, Field(ge=0)]
Bound = float | None


class Entry(Record):
    """One metric: its value with the 95 % interval, or why it is undefined."""

    value: float | None
    ci95: Annotated[list[Bound], Field(min_length=2, max_length=2)]
    n: Count
    skipped: Count
    unit: str
    higher_is_better: bool | None
    averaged_over: str = "none"
    without_images: Count = 0
    unknown: Count = 0
    reason: str | None = None

    @property
    def low(self) -> Bound:
        """Lower end of the 95 % interval."""
        return self.ci95[0]

    @property
    def high(self) -> Bound:
        """Upper end of the interval."""
        return self.ci95[1]

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Entry:
        low, high = self.ci95
        if low is not None and high is not None and low > high:
            raise ValueError(f"`ci95` begins at {low}, above its end at {high}")
        return self


class Protocol(Record):
    """How the numbers were made."""

    variant: str = "paper"
    memory_budget: float | None = None
    device: str | None = None
    data: dict[str, Any] | None = None


class TrainingRecord(Record):
    """What decided the weights; of released ones only the model is known."""

    model: dict[str, Any] | None = None
    phases: dict[str, dict[str, Any]] | None = None
    epochs: dict[str, Count] | None = None
    phase: str | None = None
    complete: bool | None = None
    projected: bool | None = None

    @model_validator(mode="after")
    def _says_where_it_was_cut_short(self) -> TrainingRecord:
        lacking = {"phases", "epochs", "phase", "projected"} - self.model_fields_set
        if self.complete is False and lacking:
            raise ValueError(f"the schedule of `training`, which is not complete, lacks {', '.join(sorted(lacking))}")
        return self


class Timing(Record):
    """How long it took, and when it ended."""

    images: Count
    ended: str


class OtherData(Record):
    """What was evaluated on if not the data of the run."""

    config: str
    classes: Count
    matched: Count


def range_of(key: str, variant: str | None = None) -> tuple[float, float]:
    """The smallest and largest value of a metric, a little wider for rounding.

    Args:
        key: of a result; one that is not known has no bounds.
        variant: of the formulas; ranges hold for ``"paper"``, and only the family general has no other variant.

    Example:
        >>> range_of("general/accuracy"), range_of("continuity/cac")
        ((-1e-09, 1.000000001), (-inf, inf))
    """
    if (entry := ENTRIES.get(key)) is None or not (variant == "paper" or key.startswith("general/")):
        return -math.inf, math.inf
    kind = entry.metric
    low, high = kind.value_ranges[entry.part or ""] if issubclass(kind, PartsMetric) else kind.value_range
    return low - ROUNDING, high + ROUNDING


class EvaluationRecord(Record):
    """What was evaluated, on what, and what was found.

    Args:
        checkpoint: what was evaluated, below the folder of its run.
        dataset: name of the data module's file.
        seed: of perturbations.
        skipped: key -> why it is not applicable.
    """

    checkpoint: str
    step: Count
    split: Literal["test", "val"]
    seed: Count
    limit: Annotated[int, Field(ge=1)] | None
    model: str
    dataset: str
    fold: Count | None
    explainer: str | None
    metrics: dict[str, Entry]
    skipped: dict[str, str]


class MetricsFile(EvaluationRecord):
    """The content of ``metrics.json``."""

    schema_: Annotated[int, Field(alias="schema", ge=SCHEMA, le=SCHEMA)]
    suite: list[str] = Field(default_factory=list)
    protocol: Protocol
    training: TrainingRecord
    other_data: OtherData | None
    timing: Timing

    @model_validator(mode="after")
    def _values_are_in_range(self) -> MetricsFile:
        for key, metric in self.metrics.items():
            low, high = range_of(key, self.protocol.variant)
            if metric.value is not None and not low <= metric.value <= high:
                raise ValueError(f"`{key}` is {metric.value}, outside its range from {low:.4g} to {high:.4g}")
        return self
