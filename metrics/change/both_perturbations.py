"""Entries of the changes that completeness and continuity have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from protometry.metrics.entry import AnyMetric, MetricEntry, Words
from protometry.metrics.facts import Facts


def both_perturbations(
    name: str,
    metric: type[AnyMetric],
    words: Words,
    build: Callable[[Facts], AnyMetric] | None = None,
    **continuity: str,
) -> tuple[MetricEntry, MetricEntry]:
    """The entries ``completeness/<name>`` and ``continuity/<name>`` of a metric."""
    other = replace(words, **({"formula": "as in completeness"} | continuity))
    return (
        MetricEntry(f"completeness/{name}", metric, words, build, needs=("explainer",), view="completeness"),
        MetricEntry(f"continuity/{name}", metric, other, build, needs=("units",), view="continuity"),
    )
