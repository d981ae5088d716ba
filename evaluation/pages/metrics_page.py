"""The page of metrics: an evaluation by family, in plain words, with the best and worst images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from protometry.evaluation.pages.contents import ReportContents
from protometry.evaluation.pages.site import Site
from protometry.evaluation.results.metrics_json import lacking, with_baselines
from protometry.evaluation.tables.markdown import interval, number, printed_unit
from protometry.metrics.suite import ENTRIES, FAMILIES

LINKED = 3  # images on either end
BETTER = {True: "higher", False: "lower", None: ""}

Ends = list[tuple[str, str]]  # images and their pages


@dataclass(frozen=True)
class MetricRow:
    """One metric.

    Args:
        key: of the result, without its family.
        value: printed with its unit, or why it is undefined.
        interval: printed, empty without one.
        lacking: how many classes have no image and how many annotations are unknown, in words, or empty.
        compared: baselines of the value and its lifts over them, each printed with its interval.
        control: the value of random maps, printed; empty where there is none, or it is the same.
    """

    name: str
    key: str
    question: str
    value: str
    interval: str
    count: int
    lacking: str
    compared: list[str]
    control: str
    better: str
    best: Ends
    worst: Ends


def metrics_page(site: Site, contents: ReportContents) -> dict[str, tuple[str, list[MetricRow]]]:
    """Write the page.

    Returns:
        Question and metrics of every family.
    """
    families: dict[str, tuple[str, list[MetricRow]]] = {}
    for key, entry in contents.files.result["metrics"].items():
        family = key.split("/")[0]
        question = FAMILIES[family].question if family in FAMILIES else ""
        metrics = families.setdefault(family, (question, []))[1]
        metrics.append(_row(contents, key, entry, question))
    controlled = any(metric.control for _, metrics in families.values() for metric in metrics)
    site.page("metrics.html", "metrics", families=families, result=contents.files.result, controlled=controlled)
    return families


def _row(contents: ReportContents, key: str, entry: Mapping[str, Any], otherwise: str) -> MetricRow:
    """One metric; metrics that the suite does not know ask what their family asks."""
    value, (low, high), unit = entry["value"], entry["ci95"], entry["unit"]
    best, worst = ends(contents, key, entry["higher_is_better"])
    control = contents.files.control.get(key)
    words, short = ENTRIES[key].words if key in ENTRIES else None, key.split("/", 1)[1]
    return MetricRow(
        name=words.name if words and words.name else short,
        key=short,
        question=words.question if words else otherwise,
        value=f"undefined: {entry['reason']}" if entry.get("reason") else _printed(value, unit),
        interval=interval(low, high, unit),
        count=entry["n"],
        lacking=lacking(entry),
        compared=_compared(key, entry),
        control="" if control is None or control.value == value else _printed(control.value, unit),
        better=BETTER[entry["higher_is_better"]],
        best=best,
        worst=worst,
    )


def _compared(key: str, entry: Mapping[str, Any]) -> list[str]:
    """Baselines of a metric and its lifts over them, each with its interval."""
    lines = []
    for name, row in list(with_baselines({key: entry}).items())[1:]:
        low, high = row["ci95"]
        bounds = interval(low, high, row["unit"])
        lines.append(f"{name.removeprefix(f'{key}, ')}: {_printed(row['value'], row['unit'])} {bounds}".strip())
    return lines


def _printed(value: float | None, unit: str) -> str:
    return f"{number(value, unit)} {printed_unit(unit)}".strip()


def ends(contents: ReportContents, key: str, higher: bool | None) -> tuple[Ends, Ends]:
    """The images with the best and with the worst values, none where all are equal or neither is better."""
    images, links = contents.files.images, contents.image_links
    if images is None or key not in images.keys or higher is None:
        return [], []
    ids = [name for name in images.sample_ids if name in links]
    values = images.rows(ids)[:, images.keys.index(key)] if ids else np.empty(0)
    known = [(float(value), name) for value, name in zip(values, ids, strict=True) if math.isfinite(value)]
    if len({value for value, _ in known}) < 2:
        return [], []
    known.sort(key=lambda item: (-item[0] if higher else item[0], item[1]))
    (first, _), (last, _) = known[0], known[-1]
    best = [(name, links[name]) for value, name in known if value != last]
    worst = [(name, links[name]) for value, name in reversed(known) if value != first]
    return best[:LINKED], worst[:LINKED]
