"""Concepts: whether the deciding ones are right, in the image and in the right place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import get_args

from torch import Tensor

from protometry.metrics.concepts.accuracy import ACCURACY, ConceptAccuracy
from protometry.metrics.concepts.auc import AUC, ConceptAUC
from protometry.metrics.concepts.calibration_error import CALIBRATION_ERROR, ConceptCalibrationError
from protometry.metrics.concepts.completeness import COMPLETENESS, ConceptCompleteness
from protometry.metrics.concepts.effective_concepts import (
    EFFECTIVE_CONCEPTS,
    AccuracyAtNEC,
    MeanAccuracyAtNEC,
    why_no_heads,
)
from protometry.metrics.concepts.existence import ConceptExistence, Subset, existence_entry
from protometry.metrics.concepts.global_importance import GLOBAL_IMPORTANCE, ConceptGlobalImportance
from protometry.metrics.concepts.impurity import IMPURITY, NicheImpurity, OracleImpurity
from protometry.metrics.concepts.leakage import LEAKAGE, ConceptTaskLeakage, InterconceptLeakage
from protometry.metrics.concepts.locality import LOCALITY, ConceptLocality
from protometry.metrics.concepts.location import ConceptLocation, location_entry
from protometry.metrics.concepts.part_overlap import ConceptMaskIntersectionOverUnion, overlap_entry
from protometry.metrics.concepts.ranked_concepts import Order, Ranking
from protometry.metrics.concepts.residual_share import RESIDUAL_SHARE, ResidualShare
from protometry.metrics.concepts.tcav import TCAV, TCAVArea
from protometry.metrics.entry import Family, MetricEntry
from protometry.metrics.facts import Facts
from protometry.metrics.needs import Need, class_table, unless

__all__ = [
    "AccuracyAtNEC",
    "ConceptAUC",
    "ConceptAccuracy",
    "ConceptCalibrationError",
    "ConceptCompleteness",
    "ConceptExistence",
    "ConceptGlobalImportance",
    "ConceptLocality",
    "ConceptLocation",
    "ConceptMaskIntersectionOverUnion",
    "ConceptTaskLeakage",
    "InterconceptLeakage",
    "MeanAccuracyAtNEC",
    "NicheImpurity",
    "OracleImpurity",
    "ResidualShare",
    "TCAVArea",
]

_SIZES, _ALPHAS = (1, 3, 5), (1.0, 3.0, 6.0)


def _ranked() -> Iterator[MetricEntry]:
    """The metrics of the k most important concepts: suites hold rankings by contribution, ``concepts_full`` all."""
    for ranking, order, k in product(get_args(Ranking), get_args(Order), _SIZES):
        for subset in get_args(Subset):
            yield existence_entry(k, ranking, order, subset)
        for alpha in _ALPHAS if order == "signed" else _ALPHAS[:1]:
            yield location_entry(k, ranking, order, alpha)
            yield overlap_entry(k, ranking, order, alpha)


def _at_least(k: int, ids: Callable[[Facts], Tensor], what: str, facts: Facts) -> str | None:
    count = int((ids(facts) >= 0).sum())
    return unless(count >= k, f"{count} of the model's units stand for a concept{what}, fewer than {k}")


def _enough() -> Iterator[tuple[str, Need]]:
    """Needs of k concepts that can be ranked."""
    for k in _SIZES:
        yield f"concepts@{k}", partial(_at_least, k, lambda facts: facts.named, "")
        yield f"located@{k}", partial(_at_least, k, lambda facts: facts.concept_groups, " of a part")
        yield f"masked@{k}", partial(_at_least, k, lambda facts: facts.concept_masks, " of a part with a mask")


_NO_CONCEPTS = "the units of the model stand for no concepts"

FAMILY = Family(
    "concepts",
    "Are concepts correct, present in the image, at the right place, and used by the right classes?",
    (
        *GLOBAL_IMPORTANCE,
        *_ranked(),
        ACCURACY,
        AUC,
        CALIBRATION_ERROR,
        *IMPURITY,
        *LEAKAGE,
        RESIDUAL_SHARE,
        *EFFECTIVE_CONCEPTS,
        COMPLETENESS,
        TCAV,
        LOCALITY,
    ),
    {
        "named_units": lambda facts: None if facts.unit_concepts is not None else facts.training or _NO_CONCEPTS,
        "class_concepts": class_table("class_concepts"),
        **dict(_enough()),
        "sparse_heads": why_no_heads,
        "concept_units": lambda facts: unless(bool(facts.concept_units.any()), _NO_CONCEPTS),
        "removable_parts": lambda facts: unless(
            bool((facts.removable_part_of_concepts >= 0).any()), "no concept is about a part that can be removed"
        ),
        "residual": lambda facts: unless(facts.residual, "the units of the model explain its logits completely"),
    },
    "For models with a weight matrix whose units are concepts, or are named after them; formulas, baselines and the "
    "rankings of the suite `concepts_full` are in [concepts](read_the_numbers.md#concepts). θ are weights, u scores, V "
    "how strongly a class has a concept. Not in the default suite.",
)
