"""All scores of the FunnyBirds protocol that belong together: one threshold is chosen for them at the end."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torchmetrics.wrappers.abstract import WrapperMetric

from protometry.metrics.base import PartsMetric
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.facts import Facts
from protometry.metrics.funnybirds.completeness import funnybirds_aggregate, heldout_completeness, select_threshold
from protometry.metrics.funnybirds.controlled_synthetic_data_check import (
    CSDC_WORDS,
    ControlledSyntheticDataCheck,
    minimal_sufficient_sets,
)
from protometry.metrics.funnybirds.distractibility import D_WORDS, Distractibility
from protometry.metrics.funnybirds.important_parts import IMPORTANT_PARTS_WORDS, ImportantParts, part_thresholds
from protometry.metrics.funnybirds.preservation_and_deletion import DC_WORDS, PC_WORDS, DeletionCheck, PreservationCheck
from protometry.metrics.funnybirds.single_deletion import SD_WORDS, SingleDeletion
from protometry.metrics.funnybirds.target_sensitivity import TS_WORDS, TargetSensitivity
from protometry.metrics.funnybirds.threshold_mean import ThresholdMean
from protometry.metrics.primitives.intervals import Range

_COMPLETENESS = ("csdc", "pc", "dc", "d")  # the components of completeness, at one threshold
_SAME = {"correctness": "sd", "contrastivity": "ts"}  # a number under another name


class FunnyBirdsScores(PartsMetric, WrapperMetric):
    """The checks of important parts at one threshold, the scores of part importance, and what sums them up.

    Source: Hesse et al. (2023) and Opłatek et al. (2024), see
    :func:`protometry.metrics.functional.funnybirds_aggregate` and the classes of the seven checks. Which threshold is
    chosen, and therefore every number at it, depends on all images.

    Args:
        parts: the scores to report, names in ``units``; None for all. No check is fed that none of them needs.
    """

    units: ClassVar[dict[str, str]] = {
        **dict.fromkeys((*_COMPLETENESS, "sd", "ts", "completeness"), "fraction"),
        "important_parts": "count",
        **dict.fromkeys(("completeness_mean", "completeness_area", "completeness_heldout"), "fraction"),
        **dict.fromkeys(("correctness", "contrastivity", "overall"), "fraction"),
    }
    value_ranges: ClassVar[dict[str, Range]] = dict.fromkeys(units, (0.0, 1.0)) | {
        "important_parts": ImportantParts.value_range
    }
    exceptions: ClassVar[dict[str, dict[str, Any]]] = {
        "important_parts": {"higher_is_better": False},
        **{name: {"averaged_over": "none"} for name in units if name.startswith("completeness") or name == "overall"},
    }
    averaged_over = "image"
    higher_is_better = True

    def __init__(
        self,
        sufficient_sets: Tensor,
        num_thresholds: int = 80,
        parts: Collection[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.num_thresholds = num_thresholds
        self.parts = [part for part in self.units if parts is None or part in parts]
        checks = {
            "csdc": ControlledSyntheticDataCheck(sufficient_sets, num_thresholds, **kwargs),
            "pc": PreservationCheck(num_thresholds, **kwargs),
            "dc": DeletionCheck(num_thresholds, **kwargs),
            "d": Distractibility(num_thresholds, **kwargs),
            "important_parts": ImportantParts(num_thresholds, sufficient_sets.shape[2], **kwargs),
            "sd": SingleDeletion(**kwargs),
            "ts": TargetSensitivity(**kwargs),
        }
        needed = {check for part in self.parts for check in _checks_of(part)}
        self.checks = nn.ModuleDict({name: check for name, check in checks.items() if name in needed})
        self.reads = tuple(dict.fromkeys(field for check in self._each().values() for field in check.reads))

    def update(self, **fields: Tensor) -> None:
        if missing := [name for name in self.reads if name not in fields]:
            raise TypeError(f"Expected arguments {list(self.reads)}, but got none for {missing}.")
        for check in self._each().values():
            check.update(**{name: fields[name] for name in check.reads})

    def reset(self) -> None:
        super().reset()
        for check in self._each().values():
            check.reset()

    def compute(self) -> dict[str, Tensor]:
        """The values of :meth:`summary` over all processes, float64 scalars."""
        device = next(iter(self._each().values())).device
        return {
            name: torch.tensor(summary["value"], dtype=torch.float64, device=device)
            for name, summary in self.summary().items()
        }

    def threshold_index(self) -> int | None:
        """The threshold at which the checks are reported, over all processes; None where one of them is undefined.

        Every process has to call it, as with ``compute``.
        """
        curves = [self._each()[name].compute() for name in _COMPLETENESS if name in self.checks]
        defined = bool(curves) and all(bool(curve.isfinite().all()) for curve in curves)
        return select_threshold(*curves) if defined else None

    def summary(self) -> dict[str, dict[str, Any]]:
        """For each of ``parts`` what :meth:`SummaryMetric.summary` returns; sums of several have no interval.

        Every process has to call it. Without a threshold, all that is reported at it is NaN, of all images. Next to
        completeness, the ``threshold``.
        """
        each, index = self._each(), self.threshold_index()
        entries: dict[str, dict[str, Any]] = {
            name: check.summary() if name in _SAME.values() else _at(check, index) for name, check in each.items()
        }
        if "csdc" in each:
            entries |= self._sums(entries)
        entries |= {name: entries[check] for name, check in _SAME.items() if check in each}
        return {name: entries[name] | self.exceptions.get(name, {}) for name in self.parts}

    def _sums(self, entries: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """What sums up the checks, given their summaries."""
        each = self._each()
        values = {name: each[name].compute() for name in (*_COMPLETENESS, "sd", "ts") if name in each}
        thresholds = part_thresholds(self.num_thresholds).to(values["csdc"].device)
        unknown = dict.fromkeys(("sd", "ts"), thresholds.new_tensor(math.nan))
        scores = funnybirds_aggregate(**(unknown | values), thresholds=thresholds)
        scores["completeness_heldout"] = heldout_completeness(*(each[name].halves() for name in _COMPLETENESS))
        threshold, images = scores.pop("threshold"), entries["pc"]["n"] + entries["pc"]["skipped"]
        sums: dict[str, dict[str, Any]] = {}
        for name, value in scores.items():
            n = 0 if math.isnan(value) else images
            sums[name] = {"value": value, "low": math.nan, "high": math.nan, "n": n, "skipped": images - n}
        sums["completeness"]["threshold"] = threshold
        return sums

    @property
    def image_values(self) -> dict[str, Tensor]:
        """Name of each check -> its values of the last batch, ``(B,)``, or ``(B, T)`` at every threshold; no state."""
        return {name: check.image_values for name, check in self._each().items()}

    def _each(self) -> dict[str, Any]:
        return cast(dict[str, Any], self.checks)


def _checks_of(part: str) -> tuple[str, ...]:
    """The checks that a score needs; which threshold is chosen depends on four."""
    if part in ("sd", "ts", *_SAME):
        return (_SAME.get(part, part),)
    return (*_COMPLETENESS, "important_parts", *(_SAME.values() if part == "overall" else ()))


def _at(metric: ThresholdMean, index: int | None) -> dict[str, float]:
    """The summary at the chosen threshold; without one, nothing is defined."""
    summary = metric.summary(index or 0)
    if index is not None:
        return summary
    undefined = {"n": 0, "skipped": summary["n"] + summary["skipped"]}
    return dict.fromkeys(("value", "low", "high"), math.nan) | undefined


def _build(facts: Facts) -> FunnyBirdsScores:
    assert facts.class_parts is not None
    parts = [part for part in FunnyBirdsScores.units if f"funnybirds/{part}" in facts.asked]
    return FunnyBirdsScores(minimal_sufficient_sets(facts.class_parts), parts=parts or None)


_COMPLETENESS_WORDS = Words(
    question="Are the important parts enough, needed, and no others?",
    name="Completeness",
    formula="((CSDC + PC + DC) / 3 + D) / 2",
    source="[H23a]",
    misread="Declaring all parts important is nearly perfect for a model that uses all: read `important_parts`. The "
    "threshold is chosen on the same images.",
)
_NAME = "The same number under the name of the dimension."
_WORDS = {
    "csdc": CSDC_WORDS,
    "pc": PC_WORDS,
    "dc": DC_WORDS,
    "d": D_WORDS,
    "sd": SD_WORDS,
    "ts": TS_WORDS,
    "completeness": _COMPLETENESS_WORDS,
    "important_parts": IMPORTANT_PARTS_WORDS,
    "completeness_mean": replace(
        _COMPLETENESS_WORDS,
        name="Completeness, plain mean",
        formula="(CSDC + PC + DC + D) / 4",
        source="[O24]",
        misread="The wording of the paper, not its code.",
    ),
    "completeness_area": replace(
        _COMPLETENESS_WORDS,
        name="Completeness, area",
        formula="mean of completeness over all thresholds",
        source="none",
        misread="No threshold is chosen, so nothing is tuned.",
    ),
    "completeness_heldout": replace(
        _COMPLETENESS_WORDS,
        name="Completeness, held out",
        formula="completeness of images with an odd sample key at the threshold chosen on the others",
        source="none",
        misread="Half of the images. What `completeness` gains over it is due to the chosen threshold, or chance.",
    ),
    "correctness": replace(SD_WORDS, name="Correctness", formula="as `funnybirds/sd`", source="[H23a]", misread=_NAME),
    "contrastivity": replace(
        TS_WORDS, name="Contrastivity", formula="as `funnybirds/ts`", source="[H23a]", misread=_NAME
    ),
    "overall": Words(
        question="How good are explanations on the whole?",
        name="Overall",
        formula="mean of completeness, correctness and contrastivity",
        source="[H23a]",
        misread="It mixes one tuned number with two untuned ones.",
    ),
}
SCORES = tuple(
    MetricEntry(
        f"funnybirds/{part}",
        FunnyBirdsScores,
        _WORDS[part],
        _build,
        needs=("class_parts", "single_label", "interventions", "label_map", "class_maps"),
        view="part_removal",
        part=part,
        shared="funnybirds",
    )
    for part in FunnyBirdsScores.units
)
