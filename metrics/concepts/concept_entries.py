"""The concept metrics by result key: suites hold the rankings by contribution, ``concepts_full`` all of them.

Units that stand for a concept take part, whether the model names them or the engine did.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from metrics.concepts.concept_existence import ConceptExistence, Subset
from metrics.concepts.concept_importance import Axis, ConceptGlobalImportance, Kind, Order, Ranking
from metrics.concepts.concept_location import ConceptLocation, ConceptMaskIntersectionOverUnion, alpha_suffix
from metrics.concepts.ranked_concepts import ranking_suffix
from metrics.entry import MetricEntry
from metrics.facts import Facts

_SIZES, _ALPHAS = (1, 3, 5), (1.0, 3.0, 6.0)
_BASIC = ("weight", "single_label", "training", "named_units")
_LABELS = "concepts_class|concepts_image"


def _named(facts: Facts) -> str | None:
    return "the units of the model stand for no concepts" if facts.unit_concepts is None else None


def _enough(facts: Facts, k: int, ids: Callable[[Facts], Tensor], what: str) -> str | None:
    found = int((ids(facts) >= 0).sum())
    return None if found >= k else f"{found} of the model's units stand for a concept{what}, fewer than {k}"


# for what a concept metric may need: None if it is there, else the reason why the metric does not apply
CONCEPT_NEEDS: dict[str, Callable[[Facts], str | None]] = {"named_units": _named}
for _k in _SIZES:
    CONCEPT_NEEDS |= {
        f"concepts@{_k}": partial(_enough, k=_k, ids=lambda facts: facts.named, what=""),
        f"located@{_k}": partial(_enough, k=_k, ids=lambda facts: facts.concept_groups, what=" of a part"),
        f"masked@{_k}": partial(_enough, k=_k, ids=lambda facts: facts.concept_masks, what=" of a part with a mask"),
    }


def _weight(facts: Facts) -> Tensor:
    assert facts.weight is not None
    return facts.weight.detach()[:, facts.named].float()


def _importance(facts: Facts, kind: Kind, axis: Axis) -> ConceptGlobalImportance:
    assert facts.weight is not None
    assert facts.class_concepts is not None
    assert facts.unit_concepts is not None
    concepts = facts.unit_concepts
    table = facts.class_concepts[:, concepts.clamp(min=0)].masked_fill(concepts < 0, torch.nan)
    one_each = facts.concepts is not None and len(concepts) == facts.class_concepts.shape[1]
    columns: Literal["concept", "unit"] = "concept" if one_each else "unit"
    return ConceptGlobalImportance(facts.weight.detach().float(), table, kind, axis, columns=columns)


def _existence(facts: Facts, k: int, ranking: Ranking, order: Order, subset: Subset) -> ConceptExistence:
    assert facts.unit_concepts is not None
    assert facts.concept_order is not None
    place = facts.concept_order.argsort()  # of each concept in the order of the training images
    units = place[facts.unit_concepts[facts.named]].argsort(stable=True)
    return ConceptExistence(_weight(facts), k, ranking, order, subset, prevalence_order=units)


def _location(facts: Facts, k: int, alpha: float, ranking: Ranking, order: Order) -> ConceptLocation:
    return ConceptLocation(_weight(facts), facts.concept_points, k, alpha, ranking, order)


def _overlap(facts: Facts, k: int, alpha: float, ranking: Ranking, order: Order) -> ConceptMaskIntersectionOverUnion:
    return ConceptMaskIntersectionOverUnion(_weight(facts), facts.concept_masks, k, alpha, ranking, order)


def _importances() -> dict[str, MetricEntry]:
    needs = ("weight", "single_label", "named_units", "class_concepts")
    return {
        f"concepts/cgim{kind}_{axis}": MetricEntry(partial(_importance, kind=kind, axis=axis), needs)
        for axis, kind in product(get_args(Axis), get_args(Kind))
    }


def _ranked(k: int, ranking: Ranking, order: Order) -> dict[str, MetricEntry]:
    """The metrics of the k most important concepts under one ranking."""
    options: dict[str, Any] = {"k": k, "ranking": ranking, "order": order}
    suffix, found = ranking_suffix(ranking, order), {}
    for subset in get_args(Subset):
        end, needs = suffix + {"all": "", "correct": "_correct"}[subset], (*_BASIC, _LABELS, f"concepts@{k}")
        build = partial(_existence, subset=subset, **options)
        found[f"concepts/cem@{k}{end}"] = MetricEntry(build, needs, "concepts", full=bool(end))
    for alpha in _ALPHAS if order == "signed" else _ALPHAS[:1]:
        end, options["alpha"] = alpha_suffix(alpha) + suffix, alpha
        located, masked = ("part_points", f"located@{k}"), ("label_map", f"masked@{k}")
        entry = partial(MetricEntry, view="concepts", full=bool(end))
        found[f"concepts/clm@{k}{end}"] = entry(partial(_location, **options), (*_BASIC, *located))
        found[f"concepts/part_iou@{k}{end}"] = entry(partial(_overlap, **options), (*_BASIC, *masked))
    return found


CONCEPT_METRICS = _importances()
for _ranking, _order, _k in product(get_args(Ranking), get_args(Order), _SIZES):
    CONCEPT_METRICS |= _ranked(_k, _ranking, _order)
