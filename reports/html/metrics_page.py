"""The page of metrics: those of an evaluation by family, in plain words, with their best and worst images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reports.html.evaluation_files import EvaluationFiles
from reports.metric_words import FAMILIES, asks, better
from reports.results.markdown import interval, number, printed_unit

LINKED = 3  # images on either end


@dataclass(frozen=True)
class Shown:
    """One metric.

    Args:
        key: of the result.
        question: what it asks.
        value: printed with its unit.
        interval: printed, empty without one.
        count: of the values averaged.
        direction: in words.
        best: image and page of the best values among the images shown.
        worst: the same of the worst.
    """

    key: str
    question: str
    value: str
    interval: str
    count: int
    direction: str
    best: list[tuple[str, str]]
    worst: list[tuple[str, str]]


def families(files: EvaluationFiles, links: Mapping[str, str]) -> list[tuple[str, str, list[Shown]]]:
    """Name, question and metrics of every family.

    Args:
        files: what the evaluation found.
        links: sample id -> page, of the images that have one.
    """
    groups: dict[str, list[Shown]] = {}
    for key, entry in files.result["metrics"].items():
        groups.setdefault(key.split("/")[0], []).append(_shown(files, links, key, entry))
    return [(name, FAMILIES.get(name, ""), metrics) for name, metrics in groups.items()]


def _shown(files: EvaluationFiles, links: Mapping[str, str], key: str, entry: Mapping[str, Any]) -> Shown:
    low, high = entry["ci95"]
    value, unit = entry["value"], entry["unit"]
    best, worst = _ends(files, links, key, entry["higher_is_better"])
    return Shown(
        key,
        asks(key),
        f"{number(math.nan if value is None else value, unit)} {printed_unit(unit)}".strip(),
        interval(low, high, unit),
        entry["n"],
        better(entry["higher_is_better"]),
        best,
        worst,
    )


def _ends(
    files: EvaluationFiles, links: Mapping[str, str], key: str, higher: bool | None
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The images with the best and with the worst values, none where all are equal or neither is better."""
    if files.images is None or key not in files.images.keys or higher is None:
        return [], []
    ids = [name for name in files.images.sample_ids if name in links]
    values = files.images.rows(ids)[:, files.images.keys.index(key)] if ids else np.empty(0)
    known = [(float(value), name) for value, name in zip(values, ids, strict=True) if math.isfinite(value)]
    if len({value for value, _ in known}) < 2:
        return [], []
    order = [name for _, name in sorted(known, key=lambda item: (-item[0] if higher else item[0], item[1]))]
    ends = order[:LINKED], order[::-1][:LINKED]
    best, worst = ([(name, links[name]) for name in end] for end in ends)
    return best, worst
