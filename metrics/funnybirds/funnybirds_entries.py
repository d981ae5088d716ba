"""The metrics of the FunnyBirds protocol by result key; the scores at one threshold are parts of one metric."""

from __future__ import annotations

from collections.abc import Callable

from metrics.entry import MetricEntry
from metrics.facts import Facts
from metrics.funnybirds.aggregate import minimal_sufficient_sets
from metrics.funnybirds.funnybirds import BackgroundIndependence, HiddenParts, TotalsNotPositive
from metrics.funnybirds.funnybirds_scores import FunnyBirdsScores
from metrics.general.classification import Accuracy

_CLASS_PARTS = ("class_parts", "single_label")
_REMOVED = (*_CLASS_PARTS, "interventions")
_MAPPED = (*_REMOVED, "label_map")

# for what these metrics may need: None if it is there, else the reason why they do not apply
FUNNYBIRDS_NEEDS: dict[str, Callable[[Facts], str | None]] = {
    "class_parts": lambda facts: (
        None if facts.class_parts is not None else "the classes are not put together from parts"
    ),
    "part_shares": lambda facts: None if facts.part_shares else "boxes do not go by shares of a sum",
}


def _funnybirds_scores(facts: Facts) -> FunnyBirdsScores:
    assert facts.class_parts is not None
    return FunnyBirdsScores(minimal_sufficient_sets(facts.class_parts))


def _funnybirds() -> dict[str, MetricEntry]:
    """The FunnyBirds protocol, whose scores at one threshold share a metric."""
    entries = {
        "accuracy": MetricEntry(lambda facts: Accuracy(), _CLASS_PARTS),
        "bi": MetricEntry(lambda facts: BackgroundIndependence(), _REMOVED, "part_removal"),
    }
    for part in FunnyBirdsScores.parts:
        entries[part] = MetricEntry(_funnybirds_scores, _MAPPED, "part_removal", part, shared="funnybirds")
    entries["hidden_parts"] = MetricEntry(lambda facts: HiddenParts(), _MAPPED, "part_removal")
    shares = (*_MAPPED, "part_shares")
    entries["totals_not_positive"] = MetricEntry(lambda facts: TotalsNotPositive(), shares, "part_removal")
    return {f"funnybirds/{name}": entry for name, entry in entries.items()}


FUNNYBIRDS_METRICS = _funnybirds()
