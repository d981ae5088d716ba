"""Suites of metrics an evaluation can ask for, by family or by key.

Which metrics apply is decided before any image is seen: a metric that does not apply is never built, and its reason is
reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module

from protometry.metrics import (
    alignment,
    change,
    class_representation,
    compactness,
    complexity,
    concepts,
    contrastivity,
    funnybirds,
    general,
    intervention,
    localisation,
    sanity,
)
from protometry.metrics.entry import AnyMetric, Family, MetricEntry
from protometry.metrics.facts import Facts
from protometry.metrics.needs import NEEDS
from protometry.run_folder.command_line.messages import did_you_mean

# the order of results
FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        general.FAMILY,
        compactness.FAMILY,
        change.COMPLETENESS,
        change.CONTINUITY,
        contrastivity.FAMILY,
        complexity.FAMILY,
        alignment.FAMILY,
        localisation.FAMILY,
        sanity.FAMILY,
        class_representation.FAMILY,
        concepts.FAMILY,
        intervention.FAMILY,
        funnybirds.FAMILY,
    )
}
ENTRIES: dict[str, MetricEntry] = {entry.key: entry for family in FAMILIES.values() for entry in family.entries}

_ONE_BY_ONE: dict[str, Family] = {}  # families whose entries were named by their own import paths

# Schlinge et al. (2025): the metrics of their tables 2 to 5, whose accuracy is in fact the balanced one
_QUANPROTO = {
    "general": ("accuracy", "balanced_accuracy", "top3_accuracy", "f1"),
    "compactness": ("global_size", "sparsity", "npr", "local_size"),
    "completeness": ("vlc", "vac", "plc", "psc", "prc", "palc", "pac"),
    "continuity": ("plc", "psc", "prc", "palc", "pac", "cac", "crc"),
    "contrastivity": ("plc", "palc", "apd_intra", "apd_inter", "afd_intra", "afd_inter", "entropy"),
    "complexity": ("object_overlap", "background_overlap", "iord", "consistency"),
}
SUITES: dict[str, tuple[str, ...]] = {
    "quanproto": tuple(f"{family}/{name}" for family, names in _QUANPROTO.items() for name in names),
    "all": tuple(key for family in FAMILIES.values() for key in family.keys),
    **{f"{name}_full": tuple(entry.key for entry in FAMILIES[name].entries) for name in ("sanity", "concepts")},
    "audit": tuple(key for key, entry in ENTRIES.items() if entry.words.finding),
}


def resolve(suite: Sequence[str]) -> list[str]:
    """Expand the names in a config to keys.

    Args:
        suite: ``"all"``, ``"quanproto"``, ``"audit"``, ``"sanity_full"``, ``"concepts_full"``, families
            (``"general"``), keys (``"general/f1"``), or the import path of a
            :class:`~protometry.metrics.entry.MetricEntry` or :class:`~protometry.metrics.entry.Family` of your own
            (``"my_package.metrics.ENTRY"``, ``"my_package.metrics.FAMILY"``), whose name and keys are known from then
            on; ``"my_package.metrics.FAMILY/name"`` for one key of a family.

    Returns:
        Keys without repetition, in the requested order; within a family, in the order of its entries.

    Raises:
        ValueError: if a name is unknown, listing the known ones; if an import path leads to no entry or family, or to
            one whose name is taken.
        TypeError: if ``suite`` is a single string.

    Example:
        >>> resolve(["general/f1", "localisation"])[:2]
        ['general/f1', 'localisation/pointing_game']
    """
    if isinstance(suite, str):
        raise TypeError(f"Expected argument `suite` to be a list of names, but got {suite!r}; write [{suite!r}].")
    names = [_registered(name) if "." in name.partition("/")[0] else name for name in suite]
    families = {name: family.keys for name, family in FAMILIES.items()}
    known = SUITES | families | {key: (key,) for key in ENTRIES}
    if unknown := [name for name in names if name not in known]:
        near = did_you_mean(unknown[0], known)
        raise ValueError(
            f"Expected argument `suite` to hold names among {[*SUITES, *families]}, or keys such as 'general/f1' "
            f"(`python -m protometry.metrics` prints all), but got {unknown}.{near}"
        )
    return list(dict.fromkeys(key for name in names for key in known[name]))


def build(keys: Sequence[str], facts: Facts) -> tuple[dict[str, AnyMetric], dict[str, str]]:
    """Build the metrics that apply.

    Returns:
        Key to metric, and key to the reason why it is not applicable.

    Example:
        >>> import torch
        >>> from types import SimpleNamespace
        >>> units = SimpleNamespace(active=torch.ones(8, dtype=torch.bool), weight=None)
        >>> facts = Facts(4, False, units, tables=None, missing=lambda flag: None)
        >>> build(["general/accuracy", "compactness/npr"], facts)
        ({'general/accuracy': Accuracy()}, {'compactness/npr': 'weight: the model has no weight matrix'})
    """
    metrics: dict[str, AnyMetric] = {}
    skipped: dict[str, str] = {}
    built: dict[str, AnyMetric] = {}
    asked = resolve(keys)
    facts = replace(facts, asked=frozenset(asked))
    for key in asked:
        entry = ENTRIES[key]
        reasons = [f"{need}: {reason}" for need in entry.needs if (reason := why_not(key, need, facts)) is not None]
        if reasons:
            skipped[key] = "; ".join(reasons)
            continue
        name = entry.shared or key
        if name not in built:
            built[name] = entry.make(facts)
        metrics[key] = built[name]
    return metrics, skipped


def why_not(key: str, need: str, facts: Facts) -> str | None:
    """Why a metric that has this need does not apply; None if what it needs is there."""
    needs = {**NEEDS, **FAMILIES[key.partition("/")[0]].needs}
    if need in needs:
        return needs[need](facts)
    try:
        missing = [facts.missing(field) for field in need.split("|")]
    except ValueError as error:
        raise ValueError(
            f"Expected the needs of {key} to be among {sorted(needs)} or fields of the data, but got {need!r}: {error}"
        ) from error
    return None if None in missing else "; ".join(reason for reason in missing if reason)


def _registered(path: str) -> str:
    """The name or key of what an import path leads to, which joins the others."""
    dotted, _, name = path.partition("/")
    module, _, attribute = dotted.rpartition(".")
    try:
        registered = getattr(import_module(module), attribute, None)
    except ImportError as error:
        raise ValueError(
            f"Expected {path!r} in argument `suite` to be the import path of a MetricEntry or Family of "
            f"protometry.metrics.entry, but {error}. Install it, or put it on PYTHONPATH."
        ) from error
    if not isinstance(registered, Family | MetricEntry):
        got = f"{module} has no such name" if registered is None else f"got {registered!r}"
        raise ValueError(
            f"Expected {path!r} in argument `suite` to be a MetricEntry or Family of protometry.metrics.entry, but "
            f"{got}. A metric of your own extends a base such as protometry.metrics.ImageMean and is named by its "
            "entry, ENTRY = MetricEntry('my_family/my_metric', MyMetric, Words(...)); docs/add_a_metric.md shows a "
            "whole file."
        )
    family = registered if isinstance(registered, Family) else _family_of(registered)
    if family.name in SUITES or FAMILIES.setdefault(family.name, family) is not family:
        raise ValueError(f"Expected the family {path!r} to have a name of its own, but {family.name!r} is taken.")
    ENTRIES.update({entry.key: entry for entry in family.entries})
    if isinstance(registered, MetricEntry):
        return registered.key
    return f"{family.name}/{name}" if name else family.name


def _family_of(entry: MetricEntry) -> Family:
    """The family of entries that are named one by one; each joins the earlier ones."""
    name = entry.key.partition("/")[0]
    earlier = _ONE_BY_ONE.get(name)
    entries = earlier.entries if earlier else ()
    if entry not in entries:
        if FAMILIES.get(name) is earlier:
            FAMILIES.pop(name, None)
        _ONE_BY_ONE[name] = Family(name, entry.words.question, (*entries, entry))
    return _ONE_BY_ONE[name]
