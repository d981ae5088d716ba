"""Suites of metrics an evaluation can ask for, by family or by key.

Which metrics apply is decided before any image is seen: a metric that does not apply is never built, and its reason is
reported.
"""

from __future__ import annotations

from collections.abc import Sequence

from metrics.entries import ENTRIES, NEEDS
from metrics.entry import AnyMetric
from metrics.facts import Facts

_KEYS = tuple(key for key, entry in ENTRIES.items() if not entry.full)
FAMILIES: dict[str, tuple[str, ...]] = {
    family: tuple(key for key in _KEYS if key.split("/")[0] == family)
    for family in dict.fromkeys(key.split("/")[0] for key in _KEYS)
}
_BEYOND_QUANPROTO = (
    "general/abstention",
    *("compactness/number_of_features", "compactness/features_per_class"),
    *FAMILIES["alignment"],
    *FAMILIES["localisation"],
    *FAMILIES["class_representation"],
    *FAMILIES["concepts"],
    *FAMILIES["intervention"],
    *FAMILIES["funnybirds"],
)
# Schlinge et al. (2025): the metrics of their tables 2 to 5, whose accuracy is in fact the balanced one
SUITES: dict[str, tuple[str, ...]] = {
    "quanproto": tuple(key for key in _KEYS if key not in _BEYOND_QUANPROTO),
    "all": _KEYS,
    "concepts_full": tuple(key for key in ENTRIES if key.split("/")[0] == "concepts"),
}


def resolve(suite: Sequence[str]) -> list[str]:
    """Expand the names in a config to keys.

    Args:
        suite: ``"all"``, ``"quanproto"``, ``"concepts_full"``, families (``"general"``) or keys (``"general/f1"``).

    Returns:
        Keys without repetition, in the order asked for; within a family, in that of ``FAMILIES``.

    Raises:
        ValueError: if a name is unknown, listing the known ones.
        TypeError: if ``suite`` is a single string.

    Example:
        >>> resolve(["general/f1", "general"])
        ['general/f1', 'general/accuracy', 'general/balanced_accuracy', 'general/top3_accuracy', 'general/abstention']
    """
    if isinstance(suite, str):
        raise TypeError(f"Expected argument `suite` to be a list of names, but got {suite!r}; write [{suite!r}].")
    known = SUITES | FAMILIES | {key: (key,) for key in ENTRIES}
    if unknown := [name for name in suite if name not in known]:
        names = [*SUITES, *FAMILIES, *_KEYS]
        raise ValueError(f"Expected argument `suite` to hold names among {names}, but got {unknown}.")
    return list(dict.fromkeys(key for name in suite for key in known[name]))


def build(keys: Sequence[str], facts: Facts) -> tuple[dict[str, AnyMetric], dict[str, str]]:
    """Build the metrics that apply.

    Args:
        keys: what to build; names that :func:`resolve` takes.
        facts: what is known about the model and the data set.

    Returns:
        Key to metric, and key to the reason why it is not applicable.

    Raises:
        ValueError: if a name is unknown.

    Example:
        >>> import torch
        >>> active, owner = torch.ones(8, dtype=torch.bool), torch.ones(8, 4, dtype=torch.bool)
        >>> facts = Facts(4, False, active, owner, missing=lambda flag: None)
        >>> build(["general/accuracy", "compactness/npr"], facts)
        ({'general/accuracy': Accuracy()}, {'compactness/npr': 'weight: the model has no weight matrix'})
    """
    metrics: dict[str, AnyMetric] = {}
    skipped: dict[str, str] = {}
    built: dict[str, AnyMetric] = {}
    for key in resolve(keys):
        entry = ENTRIES[key]
        reasons = [f"{need}: {reason}" for need in entry.needs if (reason := _reason(need, facts)) is not None]
        if reasons:
            skipped[key] = "; ".join(reasons)
            continue
        name = entry.shared or key
        if name not in built:
            built[name] = entry.build(facts)
        metrics[key] = built[name]
    return metrics, skipped


def _reason(need: str, facts: Facts) -> str | None:
    if need in NEEDS:
        return NEEDS[need](facts)
    missing = [facts.missing(field) for field in need.split("|")]
    return None if None in missing else "; ".join(reason for reason in missing if reason)
