"""The additive table of one image and one class: how scores and weights add up to its logit, line by line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import torch
from torch import Tensor

from protometry.explanations.decision import against_others, leaf_reach
from protometry.explanations.tree_path import grow, path
from protometry.lightning_modules.contract import (
    DecidesByTree,
    InterpretableModel,
    ModelOutput,
    UnitTable,
    logits_of,
)
from protometry.run_folder.command_line.messages import counted

TOLERANCE = 1e-4  # of max(1, |logit|)
LEAST = 0.01  # of the largest line, below which a line is one of the others


@dataclass(frozen=True)
class Amount:
    """The contribution of a line, in three sums.

    Args:
        value: to the logit less the mean over classes (:func:`protometry.explanations.decision.against_others`); if
            multilabel, less the threshold.
        raw: to the logit itself.
        rival: to the logit minus the logit of the class it is compared with.
    """

    value: float
    raw: float
    rival: float

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.value + other.value, self.raw + other.raw, self.rival + other.rival)


NOTHING = Amount(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Line:
    """One unit, or one cell of a model whose units are classes, with the others that look at the same place.

    Args:
        score: what the head reads.
        weight: of the head for the class; None for a tree.
        contribution: its own. For a node of a tree, ``value`` is the probability of the branch that is taken there,
            the others what the log-probability would lose without the unit.
        cell: row and column, for a cell.
        same: other lines at the same place of the image.
        is_node: whether it is a node of a tree, for which ``score`` above one half means that the unit is there.
    """

    unit: int
    score: float
    weight: float | None
    contribution: Amount
    cell: tuple[int, int] | None = None
    same: tuple[Line, ...] = ()

    is_node: bool = False

    @property
    def is_absent(self) -> bool:
        """Whether the path continues without the unit, at a node of a tree."""
        return self.is_node and self.score <= 0.5

    @property
    def branch(self) -> str:
        """Which way the path goes at a node of a tree."""
        return "absent" if self.is_absent else "present"

    @property
    def total(self) -> Amount:
        """What all lines at the place add."""
        return sum((line.contribution for line in self.same), self.contribution)


@dataclass(frozen=True)
class TreePath:
    """The path of an image through a tree, by the likelier branch at every node, in the probability of a class.

    The probability is ``reach * leaf + elsewhere``.
    """

    reach: float
    leaf: float
    elsewhere: float


@dataclass(frozen=True)
class AdditiveTable:
    """How the logit of one class comes about.

    Args:
        rival: the class it is compared with, by default the one with the largest other logit.
        margin: the logit in the sums of all lines: less what it is compared with, itself, and less the next one.
        lines: the largest contributions by absolute value that are not 0, at least one line; largest first, ties in the
            order of units. Of a tree, the nodes on the path, from the root.
        others: number of the other units; of a tree, of the other nodes on the path.
        rest: sum of their contributions; of a tree, ``value`` is the product of their probabilities.
        bias: logit at scores of 0; None for a tree, whose contributions do not add up.
        residual: part of the logit that bypasses the units, or None.
        worded: what a line is: "cell", "node", or the kind of the units.
        against: what the logit is compared with.
        by: the sum by which lines are chosen and ordered.
    """

    label: int
    rival: int
    logit: float
    margin: Amount
    probability: float
    lines: list[Line]
    others: int
    rest: Amount
    bias: Amount | None
    residual: Amount | None = None
    worded: str = "unit"
    against: str = "the mean over classes"
    tree_path: TreePath | None = None
    by: Literal["value", "rival"] = "value"

    def shown(self, line: Line) -> float:
        """What a line adds, in the sum that the table is about."""
        return line.contribution.value if line.is_node else self.amount(line.total)

    def amount(self, amount: Amount) -> float:
        """The sum that the table is about."""
        return amount.value if self.by == "value" else amount.rival

    @property
    def total(self) -> Amount:
        """Sum of all lines."""
        known = [added for added in (self.rest, self.bias, self.residual) if added is not None]
        return sum([*(line.total for line in self.lines), *known], NOTHING)

    @property
    def sums(self) -> list[tuple[str, Amount]]:
        """The lines below the units, by name; none for a tree."""
        if self.tree_path is not None:
            return []
        rows = [] if self.rest == NOTHING else [(counted(self.others, f"other {self.worded}"), self.rest)]
        rows += [] if self.bias is None or self.bias == NOTHING else [("bias", self.bias)]
        return rows + ([] if self.residual is None else [("residual, not from units", self.residual)])

    def path_sums(self, class_name: str) -> list[tuple[str, float]]:
        """Of a tree, what makes up the probability of a class: the rest of the path, its leaf, and the other paths."""
        assert self.tree_path is not None
        left = [(f"{counted(self.others, 'more node')} on this path", self.rest.value)] if self.others else []
        path = self.tree_path
        by_path = [("this path", path.reach), (f"{class_name} at its leaf", path.leaf)]
        by_path.append((f"{class_name} by this path", path.reach * path.leaf))
        return [*left, *by_path, (f"{class_name} by other paths", path.elsewhere)]

    def check(self, page: str, image: str, class_name: str) -> None:
        """Hold the sums against the logits, or the paths through a tree against the probability.

        Raises:
            ValueError: if they differ by more than 1e-4 of max(1, |logit|).
        """
        total, margin = self.total, self.margin
        sums = [
            ("logit", total.raw, margin.raw),
            (f"logit less {self.against}", total.value, margin.value),
            ("difference to the next class", total.rival, margin.rival),
        ]
        if self.tree_path is not None:
            sums = [
                ("probability", self.tree_path.reach * self.tree_path.leaf + self.tree_path.elsewhere, self.probability)
            ]
        for name, actual, expected in sums if self.bias is not None or self.tree_path is not None else []:
            if not abs(actual - expected) <= TOLERANCE * max(1.0, abs(self.logit)):
                raise ValueError(
                    f"Expected the contributions on {page}, for image {image} and class {class_name}, to sum to the "
                    f"{name} {expected:.6g}, but got {actual:.6g}. The weights that the model names are not those it "
                    "decides by."
                )


def by_place(table: AdditiveTable, places: Sequence[int], most: int) -> AdditiveTable:
    """The table with one line for each place of the image, as many as are to be shown.

    In a table that compares two classes, units at one place that speak for different classes stay apart, and if all
    lines kept are for one class, the last is replaced by the largest one for the other. The nodes of a tree stay apart,
    since each decides by itself.

    Args:
        table: with more lines than are to be shown.
        places: for each line, the first line at its place, as :func:`.places` has
            them; -1 for a line without a place.
        most: lines to keep, the largest sums by absolute value; fewer where others are
            below 1 % of the largest.
    """
    if table.tree_path is not None:
        kept, left = table.lines[:most], table.lines[most:]
        chance = math.prod([table.rest.value, *(line.contribution.value for line in left)])
        return replace(table, lines=kept, others=table.others + len(left), rest=replace(table.rest, value=chance))
    groups: dict[tuple[int, bool], list[Line]] = {}
    for index, (line, place) in enumerate(zip(table.lines, places, strict=True)):
        speaks_for = table.by == "value" or table.shown(line) > 0
        groups.setdefault((index if place < 0 else place, speaks_for), []).append(line)
    merged = [replace(first, same=tuple(others)) for first, *others in groups.values()]
    merged.sort(key=lambda line: -abs(table.shown(line)))
    large = [line for line in merged if abs(table.shown(line)) >= LEAST * abs(table.shown(merged[0]))]
    kept, opposed = large[:most], [line for line in large if not _agree(table, large[0], line)]
    if table.by == "rival" and most > 1 and opposed and opposed[0] not in kept:
        kept[-1] = opposed[0]
    left = [line for line in merged if line not in kept]
    rest = sum((line.total for line in left), table.rest)
    others = table.others + sum(1 + len(line.same) for line in left)
    return replace(table, lines=kept, others=others, rest=rest)


def _agree(table: AdditiveTable, one: Line, other: Line) -> bool:
    """Whether two lines speak for the same class."""
    return table.shown(one) * table.shown(other) > 0


@torch.no_grad()
def additive_tables(
    model: InterpretableModel,
    output: ModelOutput,
    classes: Sequence[Sequence[int]],
    most: int = 5,
    rivals: Sequence[int] | None = None,
) -> list[list[AdditiveTable]]:
    """The tables of some classes for every image of a batch, summed in float64.

    Args:
        model: in evaluation mode.
        output: what it sees in B images.
        classes: for each image, those to explain.
        most: lines of each table; of a tree, all nodes on the path.
        rivals: for each image, a class to compare with, whose tables have the lines that tell both apart.
    """
    units, logits = model.units(), output.logits.double().cpu()
    chances = model.probabilities(output.logits).double().cpu()
    context = output.extras.get("context")
    nothing = None if context is None else torch.zeros_like(context[:1])
    zero = logits_of(model, torch.zeros_like(output.scores[:1]), nothing).double().cpu()[0]
    past = output.extras["residual"].double().cpu() if "residual" in output.extras else None
    threshold = getattr(model, "decision_threshold", None)  # there if multilabel
    least = None if threshold is None else float(threshold)
    tables: list[list[AdditiveTable]] = [[] for _ in classes]
    for row, label in ((row, label) for row, labels in enumerate(classes) for label in labels):
        rival = _next(logits[row], label) if rivals is None else rivals[row]
        bias = _amount(zero, label, rival, least is not None)
        table = AdditiveTable(
            label=label,
            rival=rival,
            logit=float(logits[row, label]),
            margin=_less(_amount(logits[row], label, rival, least is not None), least),
            probability=float(chances[row, label]),
            lines=[],
            others=0,
            rest=NOTHING,
            bias=None if units.weight is None and context is None else _less(bias, least),
            residual=None if past is None else _amount(past[row], label, rival, least is not None),
            worded="cell" if units.kind == "class" else units.kind,
            against="the mean over classes" if least is None else "the threshold",
            by="value" if rivals is None else "rival",
        )
        image = image_of(output, row)
        if isinstance(model, DecidesByTree):
            tables[row].append(_with_nodes(table, model, units, image))
        else:
            tables[row].append(_with_lines(table, _terms(model, units, image, label), most, least is not None))
    return tables


@torch.no_grad()
def contributions(model: InterpretableModel, units: UnitTable, output: ModelOutput, label: int) -> Tensor:
    """``(B, U)`` float64 contributions of all units to a class; 0 for units that are not active.

    To its logit above the mean over classes, or above the threshold if multilabel; as the model itself has them where
    there is no weight matrix.
    """
    if units.weight is not None:
        weight = against_others(units.weight.double().cpu(), getattr(model, "decision_threshold", None) is not None)
        amounts = weight[label] * output.scores.double().cpu()
    else:
        classes = torch.full((len(output.scores),), label, device=output.scores.device)
        amounts = model.contributions(output, classes).double().cpu()
    return amounts.masked_fill(~units.active.cpu(), 0)


def image_of(output: ModelOutput, row: int) -> ModelOutput:
    """The output for one image of a batch, as a batch of one."""
    rows = slice(row, row + 1)
    extras = {name: value[rows] for name, value in output.extras.items()}
    cells = None if output.cells is None else output.cells[rows]
    return ModelOutput(output.logits[rows], output.scores[rows], output.maps[rows], None, extras, cells)


def with_scores(model: InterpretableModel, output: ModelOutput, scores: Tensor) -> ModelOutput:
    """The output that images would have with other scores ``(B, U)``; the same if they are the same."""
    if scores is output.scores:
        return output
    logits = logits_of(model, scores, output.extras.get("context"))
    bypass = output.extras.get("residual")
    return replace(output, logits=logits if bypass is None else logits + bypass, scores=scores)


@dataclass(frozen=True)
class _Terms:
    """Score and weight of the units or cells of an image, and what each adds to the logits: ``(E,)``, ``(K, E)``."""

    scores: Tensor
    weights: Tensor | None
    every: Tensor
    active: Tensor
    width: int = 0  # of the grid, for cells


def _terms(model: InterpretableModel, units: UnitTable, image: ModelOutput, label: int) -> _Terms:
    if units.kind == "class":  # the logit of a class is the mean of its evidence in all cells
        maps = image.maps[0].double().cpu()
        cells = maps.flatten(1)
        share = torch.full_like(cells[0], 1 / cells.shape[1])
        return _Terms(cells[label], share, cells * share, share > 0, maps.shape[2])
    scores, active = image.scores[0].double().cpu(), units.active.cpu()
    if units.weight is None:
        every = torch.cat([contributions(model, units, image, other) for other in range(image.logits.shape[1])])
        return _Terms(scores, None, every, active)
    weight = units.weight.double().cpu()
    return _Terms(scores, weight[label], (weight * scores).masked_fill(~active, 0), active)


def _with_lines(table: AdditiveTable, terms: _Terms, most: int, multi_label: bool) -> AdditiveTable:
    """The lines of the units or cells that count most."""
    raw = terms.every[table.label]
    sums = torch.stack([against_others(terms.every, multi_label)[table.label], raw, raw - terms.every[table.rival]])
    by = sums[2 * (table.by == "rival")]
    order = by.abs().masked_fill(~terms.active, -1).argsort(descending=True, stable=True)
    number = int(terms.active.sum())
    listed = order[: min(most, max(1, int(by.count_nonzero())), number)]  # others add nothing
    lines = [
        Line(
            unit=table.label if terms.width else index,
            score=float(terms.scores[index]),
            weight=None if terms.weights is None else float(terms.weights[index]),
            contribution=Amount(*sums[:, index].tolist()),
            cell=divmod(index, terms.width) if terms.width else None,
        )
        for index in listed.tolist()
    ]
    rest = Amount(*sums.index_fill(1, listed, 0).sum(dim=1).tolist())
    return replace(table, lines=lines, others=number - len(lines), rest=rest)


def _with_nodes(table: AdditiveTable, model: DecidesByTree, units: UnitTable, image: ModelOutput) -> AdditiveTable:
    """The nodes on the path of an image, and what the other paths give."""
    steps, leaf = path(grow(model), image.scores[0].cpu())
    own, other = (contributions(cast(Any, model), units, image, label)[0] for label in (table.label, table.rival))
    lines = []
    for step in steps:
        unit, chance = cast(int, step.node.unit), step.present if step.is_present else 1 - step.present
        amount = Amount(chance, float(own[unit]), float(own[unit] - other[unit]))
        lines.append(Line(unit, step.present, None, amount, is_node=True))
    tree, end = model.tree, cast(int, leaf.leaf)
    logits = tree.leaf_logits.double()
    chances = (logits.sigmoid() if tree.multilabel else logits.softmax(dim=1))[:, table.label]
    reach = leaf_reach(model, image.scores)[0]
    by_path = float(reach[end] * chances[end])
    tree_path = TreePath(float(reach[end]), float(chances[end]), float((reach * chances).sum()) - by_path)
    return replace(table, lines=lines, rest=replace(NOTHING, value=1.0), worded="node", tree_path=tree_path)


def _next(logits: Tensor, label: int) -> int:
    """The class with the largest other logit."""
    return int(logits.index_fill(0, torch.tensor(label), -torch.inf).argmax())


def _amount(values: Tensor, label: int, rival: int, multi_label: bool) -> Amount:
    """What the values ``(K,)`` of all classes say of one."""
    own = float(values[label])
    return Amount(float(against_others(values, multi_label)[label]), own, own - float(values[rival]))


def _less(amount: Amount, threshold: float | None) -> Amount:
    return amount if threshold is None else replace(amount, value=amount.value - threshold)
