"""The suite of metrics an evaluation can ask for, by family or by key.

To add a metric, add one line to ``_ENTRIES``: its key, how to build it, and what it needs. Which metrics apply is
decided here, before any image is seen; a metric that does not apply is never built and its reason is reported.
Metrics derived from :class:`~metrics.model_value.ModelValue` are updated once, with facts of the model; all others
with the record of every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from metrics.classification import (
    Accuracy,
    BalancedAccuracy,
    F1Score,
    LabelF1Score,
    SubsetAccuracy,
    TopKAccuracy,
)
from metrics.compactness import (
    FeaturesPerClass,
    GlobalSize,
    LocalSize,
    NegativePositiveRatio,
    NumberOfFeatures,
    Sparsity,
)
from metrics.summary import SummaryMetric


@dataclass(frozen=True)
class Facts:
    """What the suite has to know about a model and a data set.

    Args:
        num_classes: K.
        multi_label: whether an image has several labels.
        has_weight: whether the model has a weight matrix ``(K, U)``.
        active: ``(U,)`` bool, the model's active units.
        missing: for the name of an optional field of the data set, None if it is there, else the reason.
    """

    num_classes: int
    multi_label: bool
    has_weight: bool
    active: Tensor
    missing: Callable[[str], str | None]


@dataclass(frozen=True)
class MetricEntry:
    """How to build a metric and what it needs.

    Args:
        build: makes the metric from the facts.
        needs: names in ``_NEEDS`` or of optional fields of the data set.
    """

    build: Callable[[Facts], SummaryMetric]
    needs: tuple[str, ...] = ()


_NEEDS: dict[str, Callable[[Facts], str | None]] = {
    "weight": lambda facts: None if facts.has_weight else "the model has no weight matrix",
    "single_label": lambda facts: "an image has several labels" if facts.multi_label else None,
    "num_classes": lambda facts: None if facts.num_classes > 3 else "top-3 accuracy needs more than 3 classes",
}

_ENTRIES: dict[str, MetricEntry] = {
    "general/accuracy": MetricEntry(lambda facts: SubsetAccuracy() if facts.multi_label else Accuracy()),
    "general/balanced_accuracy": MetricEntry(lambda facts: BalancedAccuracy(facts.num_classes), ("single_label",)),
    "general/top3_accuracy": MetricEntry(lambda facts: TopKAccuracy(3), ("single_label", "num_classes")),
    "general/f1": MetricEntry(
        lambda facts: LabelF1Score(facts.num_classes) if facts.multi_label else F1Score(facts.num_classes)
    ),
    "compactness/global_size": MetricEntry(lambda facts: GlobalSize()),
    "compactness/sparsity": MetricEntry(lambda facts: Sparsity(), ("weight",)),
    "compactness/npr": MetricEntry(lambda facts: NegativePositiveRatio(), ("weight",)),
    "compactness/local_size": MetricEntry(lambda facts: LocalSize(facts.active)),
    "compactness/number_of_features": MetricEntry(lambda facts: NumberOfFeatures(), ("weight",)),
    "compactness/features_per_class": MetricEntry(lambda facts: FeaturesPerClass(), ("weight",)),
}

FAMILIES: dict[str, tuple[str, ...]] = {
    family: tuple(key for key in _ENTRIES if key.split("/")[0] == family)
    for family in dict.fromkeys(key.split("/")[0] for key in _ENTRIES)
}


def resolve(suite: Sequence[str]) -> list[str]:
    """Expand the names in a config to keys.

    Args:
        suite: families (``"general"``), keys (``"general/f1"``) or ``"all"``.

    Returns:
        Keys without repetition, in the order asked for; within a family, in that of ``FAMILIES``.

    Raises:
        ValueError: if a name is unknown, listing the known ones.
        TypeError: if ``suite`` is a single string.

    Example:
        >>> resolve(["general/f1", "general"])
        ['general/f1', 'general/accuracy', 'general/balanced_accuracy', 'general/top3_accuracy']
    """
    if isinstance(suite, str):
        raise TypeError(f"Expected argument `suite` to be a list of names, but got {suite!r}; write [{suite!r}].")
    known = {"all": tuple(_ENTRIES)} | FAMILIES | {key: (key,) for key in _ENTRIES}
    if unknown := [name for name in suite if name not in known]:
        raise ValueError(f"Expected argument `suite` to hold names among {list(known)}, but got {unknown}.")
    return list(dict.fromkeys(key for name in suite for key in known[name]))


def build(keys: Sequence[str], facts: Facts) -> tuple[dict[str, SummaryMetric], dict[str, str]]:
    """Build the metrics that apply.

    Put them into ``MetricCollection(..., compute_groups=False)``: the default merges metrics whose states happen to be
    equal after the first batch.

    Args:
        keys: what to build; names that :func:`resolve` takes.
        facts: what is known about the model and the data set.

    Returns:
        Key to metric, and key to the reason why it is not applicable.

    Raises:
        ValueError: if a name is unknown.

    Example:
        >>> import torch
        >>> facts = Facts(4, False, has_weight=False, active=torch.ones(8, dtype=torch.bool), missing=lambda flag: None)
        >>> build(["general/accuracy", "compactness/npr"], facts)
        ({'general/accuracy': Accuracy()}, {'compactness/npr': 'weight: the model has no weight matrix'})
    """
    metrics: dict[str, SummaryMetric] = {}
    skipped: dict[str, str] = {}
    for key in resolve(keys):
        entry = _ENTRIES[key]
        reasons = [f"{need}: {reason}" for need in entry.needs if (reason := _reason(need, facts)) is not None]
        if reasons:
            skipped[key] = "; ".join(reasons)
        else:
            metrics[key] = entry.build(facts)
    return metrics, skipped


def _reason(need: str, facts: Facts) -> str | None:
    return _NEEDS[need](facts) if need in _NEEDS else facts.missing(need)
