"""What a class is made of: its units, what they add on images of the class that are right and wrong, its confusions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from reports.additive import TOLERANCE
from reports.explained_model import ExplainedModel
from reports.scan import Scan

SHOWN = 10  # units of a class


@dataclass(frozen=True)
class Sheet:
    """The scoring sheet of a class.

    Args:
        label: the class.
        images: of the class.
        right: those that the model gets right.
        lines: unit, weight or None, mean contribution on right and on wrong images (None without any).
        rest: the same of all other units.
        bias: of the class, None for a tree.
        residual: mean part that passes the units by on right and on wrong images, or None.
        logit: mean on right and on wrong images.
        confusions: other class, number of images, and the units that speak most for it there.
    """

    label: int
    images: int
    right: int
    lines: list[tuple[int, float | None, float | None, float | None]]
    rest: tuple[float | None, float | None]
    bias: float | None
    residual: tuple[float | None, float | None] | None
    logit: tuple[float | None, float | None]
    confusions: list[tuple[int, int, list[int]]]


def sheet_of(subject: ExplainedModel, seen: Scan, label: int) -> Sheet:
    """The scoring sheet of one class.

    Args:
        subject: the model.
        seen: what it says of the images.
        label: the class.

    Raises:
        ValueError: if the lines do not sum to the mean logit.
    """
    members = [row for row, truth in enumerate(seen.labels) if label in truth]
    right = [row for row in members if seen.correct[row]]
    wrong = [row for row in members if not seen.correct[row]]
    weight = None if subject.units.weight is None else subject.units.weight.detach().double().cpu()
    means = [contributions(subject, seen, rows, label).mean(dim=0) if rows else None for rows in (right, wrong)]
    guide = next((mean for mean in means if mean is not None), None)
    if guide is None:
        guide = torch.zeros(seen.scores.shape[1]) if weight is None else weight[label]
    chosen = [unit for unit in guide.abs().argsort(descending=True, stable=True)[:SHOWN].tolist() if guide[unit] != 0]
    lines = []
    for unit in chosen:
        right_mean, wrong_mean = (None if mean is None else float(mean[unit]) for mean in means)
        lines.append((unit, None if weight is None else float(weight[label, unit]), right_mean, wrong_mean))
    rest = [None if m is None else float(m.sum() - m[chosen].sum()) for m in means]
    logit = [float(seen.logits[rows, label].mean()) if rows else None for rows in (right, wrong)]
    bias = residual = None
    if weight is not None:
        zero = subject.model.head(torch.zeros_like(subject.units.active[None], dtype=torch.float32))
        bias = float(zero[0, label].detach())
        past = seen.residual
        residual = [None if past is None or not rows else float(past[rows, label].mean()) for rows in (right, wrong)]
        _check(subject, label, means, residual, bias, logit)
    return Sheet(
        label,
        len(members),
        len(right),
        lines,
        (rest[0], rest[1]),
        bias,
        None if residual is None or seen.residual is None else (residual[0], residual[1]),
        (logit[0], logit[1]),
        _confusions(subject, seen, label, wrong),
    )


@torch.no_grad()
def contributions(subject: ExplainedModel, seen: Scan, rows: list[int], label: int) -> Tensor:
    """``(n, U)`` float64 contributions of all units to the logit of a class in some images; 0 of inactive ones.

    Args:
        subject: the model.
        seen: what it says of the images.
        rows: positions of the images.
        label: the class.
    """
    active, weight = subject.units.active.cpu(), subject.units.weight
    if weight is not None:
        return (weight[label].detach().double().cpu() * seen.scores[rows]).masked_fill(~active, 0)
    output, device = seen.output(rows), subject.units.active.device
    moved = type(output)(output.logits.float().to(device), output.scores.float().to(device), output.maps.to(device))
    lost = subject.model.contributions(moved, torch.full((len(rows),), label, device=device))
    return lost.double().cpu().masked_fill(~active, 0)


def _confusions(subject: ExplainedModel, seen: Scan, label: int, wrong: list[int]) -> list[tuple[int, int, list[int]]]:
    """The classes that images of a class are taken for, and the units that speak most for them."""
    counts = Counter(seen.predicted[row] for row in wrong if seen.predicted[row] != label)
    found = []
    for other, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:5]:
        rows = [row for row in wrong if seen.predicted[row] == other]
        gap = (contributions(subject, seen, rows, other) - contributions(subject, seen, rows, label)).mean(dim=0)
        found.append((other, count, gap.argsort(descending=True, stable=True)[:3].tolist()))
    return found


def _check(
    subject: ExplainedModel,
    label: int,
    means: list[Tensor | None],
    residual: list[float | None],
    bias: float,
    logit: list[float | None],
) -> None:
    for mean, past, expected in zip(means, residual, logit, strict=True):
        if mean is None or expected is None:
            continue
        total = float(mean.sum()) + bias + (past or 0.0)
        if not abs(total - expected) <= TOLERANCE * max(1.0, abs(expected)):
            raise ValueError(
                f"Expected the lines on the page of class {subject.class_names[label]} to sum to its mean logit "
                f"{expected:.6g}, but got {total:.6g}. The weights that the model names are not those it decides by."
            )
