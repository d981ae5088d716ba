"""The additive table of one image and one class: from scores and weights to the logit, line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lightning_modules.contract import InterpretableModel, ModelOutput, UnitTable
from run_folder.messages import counted

TOLERANCE = 1e-4  # of max(1, |logit|)


@dataclass(frozen=True)
class Line:
    """One unit, or one cell of a model whose units are classes.

    Args:
        unit: its index.
        score: what the head reads.
        weight: of the head for the class; None for a tree.
        contribution: to the logit of the class: score times weight, for a tree what the logit loses without the unit.
        difference: contribution to this class minus that to the other class that is compared with it.
        cell: row and column, for a cell.
    """

    unit: int
    score: float
    weight: float | None
    contribution: float
    difference: float
    cell: tuple[int, int] | None = None


@dataclass(frozen=True)
class AdditiveTable:
    """How the logit of one class comes about.

    Args:
        label: the class.
        rival: the class with the largest other logit.
        logit: of the class.
        probability: of the class.
        lines: the largest contributions by absolute value that are not 0, at least one line; largest first, ties in the
            order of units.
        others: number of the other units.
        rest: sum of their contributions.
        bias: logit at scores of 0; None for a tree, whose contributions do not add up.
        residual: part of the logit that passes the units by, or None.
        worded: what a line is: "unit" or "cell".
    """

    label: int
    rival: int
    logit: float
    probability: float
    lines: list[Line]
    others: int
    rest: float
    bias: float | None
    residual: float | None = None
    worded: str = "unit"

    @property
    def total(self) -> float:
        """Sum of all lines."""
        return sum(line.contribution for line in self.lines) + self.rest + (self.bias or 0.0) + (self.residual or 0.0)

    @property
    def others_named(self) -> str:
        """The other units in words, as ``12 other cells``."""
        return counted(self.others, f"other {self.worded}")

    def check(self, page: str, image: str, class_name: str) -> None:
        """Hold the sum against the logit.

        Args:
            page: on which the table stands.
            image: sample id.
            class_name: of the label.

        Raises:
            ValueError: if they differ by more than 1e-4 of max(1, |logit|).
        """
        if self.bias is not None and not abs(self.total - self.logit) <= TOLERANCE * max(1.0, abs(self.logit)):
            raise ValueError(
                f"Expected the contributions on {page}, for image {image} and class {class_name}, to sum to the logit "
                f"{self.logit:.6g}, but got {self.total:.6g}. The weights that the model names are not those it "
                "decides by."
            )


@torch.no_grad()
def additive_tables(
    model: InterpretableModel, output: ModelOutput, classes: Sequence[Sequence[int]], most: int = 5
) -> list[list[AdditiveTable]]:
    """The tables of some classes for every image of a batch, summed in float64.

    Args:
        model: in evaluation mode.
        output: what it sees in B images.
        classes: for each image, those to explain.
        most: lines of each table.
    """
    units, logits = model.units(), output.logits.double().cpu()
    chances = model.probabilities(output.logits).double().cpu()
    zero = model.head(torch.zeros_like(output.scores[:1])).double().cpu()[0]
    past = output.extras["residual"].double().cpu() if "residual" in output.extras else None
    tables: list[list[AdditiveTable]] = [[] for _ in classes]
    for row, label in ((row, label) for row, labels in enumerate(classes) for label in labels):
        table = AdditiveTable(
            label=label,
            rival=int(logits[row].index_fill(0, torch.tensor(label), -torch.inf).argmax()),
            logit=float(logits[row, label]),
            probability=float(chances[row, label]),
            lines=[],
            others=0,
            rest=0.0,
            bias=None if units.weight is None else float(zero[label]),
            residual=None if past is None else float(past[row, label]),
        )
        image = image_of(output, row)
        if units.kind == "class":
            tables[row].append(_with_cells(table, image, most))
        else:
            tables[row].append(_with_units(table, model, units, image, most))
    return tables


@torch.no_grad()
def contributions(model: InterpretableModel, units: UnitTable, output: ModelOutput, label: int) -> Tensor:
    """``(B, U)`` float64 contributions of all units to the logit of a class; 0 for units that are not active.

    Args:
        model: in evaluation mode.
        units: of the model.
        output: its logits and scores for B images.
        label: the class.
    """
    if units.weight is not None:
        found = units.weight[label].double().cpu() * output.scores.double().cpu()
    else:
        classes = torch.full((len(output.scores),), label, device=output.scores.device)
        found = model.contributions(output, classes).double().cpu()
    return found.masked_fill(~units.active.cpu(), 0)


def image_of(output: ModelOutput, row: int) -> ModelOutput:
    """The output for one image of a batch, as a batch of one.

    Args:
        output: of the model.
        row: of the image.
    """
    rows = slice(row, row + 1)
    extras = {name: value[rows] for name, value in output.extras.items()}
    return ModelOutput(output.logits[rows], output.scores[rows], output.maps[rows], None, extras)


def _with_units(
    table: AdditiveTable, model: InterpretableModel, units: UnitTable, image: ModelOutput, most: int
) -> AdditiveTable:
    """The lines of the units that count most."""
    own, other = (contributions(model, units, image, label)[0] for label in (table.label, table.rival))
    active = units.active.cpu()
    order = own.abs().masked_fill(~active, -1).argsort(descending=True, stable=True)
    shown = order[: min(most, max(1, int(own.count_nonzero())), int(active.sum()))]  # others add nothing
    lines = [
        Line(
            unit=unit,
            score=float(image.scores[0, unit]),
            weight=None if units.weight is None else float(units.weight[table.label, unit]),
            contribution=float(own[unit]),
            difference=float(own[unit] - other[unit]),
        )
        for unit in shown.tolist()
    ]
    rest = float(own.index_fill(0, shown, 0).sum())
    return replace(table, lines=lines, others=int(active.sum()) - len(lines), rest=rest)


def _with_cells(table: AdditiveTable, image: ModelOutput, most: int) -> AdditiveTable:
    """The lines of the cells that count most, where the logit of a class is the mean of its evidence in all cells."""
    maps = image.maps[0].double().cpu()
    own, other = maps[table.label].flatten(), maps[table.rival].flatten()
    shown = own.abs().argsort(descending=True, stable=True)[:most]
    width, weight = maps.shape[2], 1 / len(own)
    lines = [
        Line(
            unit=table.label,
            score=float(own[cell]),
            weight=weight,
            contribution=float(own[cell]) * weight,
            difference=float(own[cell] - other[cell]) * weight,
            cell=(cell // width, cell % width),
        )
        for cell in shown.tolist()
    ]
    rest = float(own.index_fill(0, shown, 0).sum()) * weight
    return replace(table, lines=lines, others=len(own) - len(lines), rest=rest, worded="cell")
