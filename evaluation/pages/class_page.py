"""The page of a class: its units, their contributions on right and wrong images, and what it is confused with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from protometry.evaluation.explained.additive import TOLERANCE
from protometry.evaluation.explained.explained_model import ExplainedModel
from protometry.evaluation.explained.scan import Scan
from protometry.evaluation.pages.contents import ReportContents, contributions_of
from protometry.evaluation.pages.errors_page import false_negatives_and_positives
from protometry.evaluation.pages.site import Site
from protometry.explanations.decision import against_others

SHOWN, LEAST = 10, 0.05  # units of a class at most; of the largest contribution, below which they are not shown
CONFUSIONS, SPEAKING = 5, 3  # classes it is confused with, and units in favour of each

Ends = list[float | None]  # on right and on wrong images; None without any


@dataclass(frozen=True)
class ClassSheet:
    """What the page of a class shows, means on images that are right and on those that are wrong.

    All contributions are relative to the mean over classes, or to the threshold if multilabel, where they add up.

    Args:
        right: how many of them the model gets right.
        lines: unit, weight or None, mean contributions.
        residual: mean parts of the logit that bypass the units, or None.
        logit: mean, the sum of all contributions where they add up.
        against: what the logit is compared with.
        confusions: other class, number of images, and the units that contribute most to it there; none if multilabel.
        mistakes: if multilabel, the numbers of false negatives and false positives of the label.
    """

    label: int
    images: int
    right: int
    lines: list[tuple[int, float | None, float | None, float | None]]
    rest: Ends
    bias: float | None
    residual: Ends | None
    logit: Ends
    against: str
    confusions: list[tuple[int, int, list[int]]]
    mistakes: tuple[int, int] | None


def class_pages(site: Site, contents: ReportContents, cards: Mapping[str, Any]) -> None:
    """Write a page for every class up to the limit, and the list of them."""
    explained, outputs = contents.explained, contents.outputs
    sheets = [class_sheet(explained, outputs, label) for label in contents.class_links]
    named = {unit for sheet in sheets for unit, *_ in sheet.lines}
    sources = explained.sources.of([unit for unit in contents.units if unit in named])
    known = {"sources": sources, "cells": explained.units.kind == "class"}
    site.page("classes.html", "classes", sheets=sheets, total=len(explained.class_names), **known)
    for sheet in sheets:
        own = [
            cards[name]
            for name, truth in zip(outputs.sample_ids, outputs.labels, strict=True)
            if sheet.label in truth and name in cards
        ]
        site.page(contents.class_links[sheet.label], "class", sheet=sheet, cards=own, **known)


def class_sheet(explained: ExplainedModel, outputs: Scan, label: int) -> ClassSheet:
    """What the page of a class shows.

    Raises:
        ValueError: if the lines do not sum to the mean logit.
    """
    members = [row for row, truth in enumerate(outputs.labels) if label in truth]
    right, wrong = ([row for row in members if outputs.correct[row] == wanted] for wanted in (True, False))
    weight = None if explained.units.weight is None else explained.units.weight.detach().double().cpu()
    means = [contributions_of(explained, outputs, rows, label).mean(dim=0) if rows else None for rows in (right, wrong)]
    guide = next((mean for mean in means if mean is not None), None)
    if guide is None:
        guide = torch.zeros(outputs.scores.shape[1]) if weight is None else weight[label]
    sizes = guide.abs()
    order = sizes.argsort(descending=True, stable=True)[:SHOWN].tolist()
    listed = [unit for unit in order if sizes[unit] > LEAST * sizes.max()]
    lines = []
    for unit in listed:
        on_right, on_wrong = (None if mean is None else float(mean[unit]) for mean in means)
        lines.append((unit, None if weight is None else float(weight[label, unit]), on_right, on_wrong))
    threshold = explained.threshold
    least = 0.0 if threshold is None else float(threshold)

    def ends(values: Tensor, less: float) -> Ends:
        above = against_others(values, threshold is not None, dim=1)[:, label] - less
        return [float(above[rows].mean()) if rows else None for rows in (right, wrong)]

    bias, residual = None, None
    if weight is None:
        logit = [float(outputs.logits[rows, label].mean()) if rows else None for rows in (right, wrong)]
    else:
        zero = (
            explained.model.head(torch.zeros_like(explained.units.active[None], dtype=torch.float32)).detach().double()
        )
        bias = float(against_others(zero.cpu()[0], threshold is not None)[label]) - least
        residual = None if outputs.residual is None else ends(outputs.residual, 0.0)
        logit = ends(outputs.logits, least)
        _check(explained, label, means, residual or [None, None], bias, logit)
    return ClassSheet(
        label=label,
        images=len(members),
        right=len(right),
        lines=lines,
        rest=[None if mean is None else float(mean.sum() - mean[listed].sum()) for mean in means],
        bias=bias,
        residual=residual,
        logit=logit,
        against="the mean over classes" if threshold is None else "the threshold",
        confusions=_confusions(explained, outputs, label, wrong) if threshold is None else [],
        mistakes=None if threshold is None else false_negatives_and_positives(outputs, label),
    )


def _confusions(
    explained: ExplainedModel, outputs: Scan, label: int, wrong: list[int]
) -> list[tuple[int, int, list[int]]]:
    """The classes that images of a class are confused with, and the units that contribute most to them."""
    counts = Counter(other for row in wrong for other in outputs.predictions[row])
    confusions = []
    for other, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:CONFUSIONS]:
        rows = [row for row in wrong if outputs.predictions[row] == (other,)]
        gap = (
            contributions_of(explained, outputs, rows, other) - contributions_of(explained, outputs, rows, label)
        ).mean(dim=0)
        confusions.append((other, count, gap.argsort(descending=True, stable=True)[:SPEAKING].tolist()))
    return confusions


def _check(
    explained: ExplainedModel, label: int, means: list[Tensor | None], residual: Ends, bias: float, logit: Ends
) -> None:
    for mean, past, expected in zip(means, residual, logit, strict=True):
        if mean is None or expected is None:
            continue
        total = float(mean.sum()) + bias + (past or 0.0)
        if not abs(total - expected) <= TOLERANCE * max(1.0, abs(expected)):
            raise ValueError(
                f"Expected the lines on the page of class {explained.class_names[label]} to sum to its mean logit "
                f"{expected:.6g}, but got {total:.6g}. The weights that the model names are not those it decides by."
            )
