"""The additive table of one image and one class: from scores and weights to the logit, line by line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lightning_modules.contract import InterpretableModel, ModelOutput

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
    units = model.units()
    logits, scores = output.logits.detach().double().cpu(), output.scores.detach().double().cpu()
    chances = model.probabilities(output.logits).detach().double().cpu()
    zero = model.head(torch.zeros_like(output.scores[:1])).detach().double().cpu()[0]
    residual = output.extras["residual"].detach().double().cpu() if "residual" in output.extras else None
    weight = None if units.weight is None else units.weight.detach().double().cpu()
    active = units.active.cpu()
    tables = []
    for row, labels in enumerate(classes):
        own = []
        for label in labels:
            rival = int(logits[row].index_fill(0, torch.tensor(label), -torch.inf).argmax())
            shares = [_shares(model, output, weight, row, k).masked_fill(~active, 0) for k in (label, rival)]
            table = AdditiveTable(
                label=label,
                rival=rival,
                logit=float(logits[row, label]),
                probability=float(chances[row, label]),
                lines=[],
                others=0,
                rest=0.0,
                bias=None if weight is None else float(zero[label]),
                residual=None if residual is None else float(residual[row, label]),
            )
            if units.kind == "class":
                own.append(_of_cells(table, output.maps[row].detach().double().cpu(), most))
                continue
            order = shares[0].abs().masked_fill(~active, -1).argsort(descending=True, stable=True)
            shown = order[: min(most, max(1, int(shares[0].count_nonzero())))]  # others add nothing
            lines = [
                Line(
                    unit=unit,
                    score=float(scores[row, unit]),
                    weight=None if weight is None else float(weight[label, unit]),
                    contribution=float(shares[0][unit]),
                    difference=float(shares[0][unit] - shares[1][unit]),
                )
                for unit in shown.tolist()
            ]
            rest = float(shares[0].index_fill(0, shown, 0).sum())
            own.append(replace(table, lines=lines, others=int(active.sum()) - len(lines), rest=rest))
        tables.append(own)
    return tables


def _shares(model: InterpretableModel, output: ModelOutput, weight: Tensor | None, row: int, label: int) -> Tensor:
    """``(U,)`` float64 contributions to the logit of a class."""
    if weight is not None:
        return weight[label] * output.scores[row].detach().double().cpu()
    one = ModelOutput(output.logits[row : row + 1], output.scores[row : row + 1], output.maps[row : row + 1])
    classes = torch.tensor([label], device=output.scores.device)
    return model.contributions(one, classes)[0].detach().double().cpu()


def _of_cells(table: AdditiveTable, maps: Tensor, most: int) -> AdditiveTable:
    """The table of a model whose units are classes: the logit is the mean of the evidence of all cells."""
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
