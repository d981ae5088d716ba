"""Why one class rather than another: a few places of an image as bars, and all the rest as one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protometry.evaluation.explained.explained_model import ExplainedImage, ExplainedModel, UnitRow
from protometry.evaluation.pages.site import percent, signed
from protometry.lightning_modules.contract import Intervenable
from protometry.run_folder.command_line.messages import counted


@dataclass(frozen=True)
class Bar:
    """A line as a bar from the middle, to the right for the class and to the left against it.

    Args:
        width: in percent of the whole scale.
        kind: "for", "against" or "sum"; "path" of a tree.
        row: with its pictures; None for the rest and the sum.
        note: what the model says of a concept.
    """

    name: str
    value: str
    width: float
    kind: str
    row: UnitRow | None = None
    note: str = ""


def contrast_of(image: ExplainedImage, explained: ExplainedModel) -> dict[str, Any]:
    """What pages show of the contrast between the explained class and another one.

    Returns:
        ``name`` and ``rival``, the two classes, the latter None of a tree or of multilabel data; ``chance`` and
        ``rival_chance``, their probabilities, the latter None where it is not among the largest; ``bars``; ``sourced``,
        whether a photo stands for one of the units; and ``is_tree``.
    """
    (table, rows), names = image.contrast, explained.class_names
    rival = names[table.rival] if table.by == "rival" else None
    chances = {other.label: other.probability for other, _ in image.tables}
    bars = _path(image, names[table.label]) if table.tree_path is not None else _bars(image, explained)
    return {
        "name": names[table.label],
        "rival": rival,
        "chance": table.probability,
        "rival_chance": chances.get(table.rival),
        "bars": bars,
        "sourced": any(row.source for row in rows),
        "is_tree": table.tree_path is not None,
    }


def _notes(image: ExplainedImage, explained: ExplainedModel) -> dict[int, str]:
    """What the model says of each concept that a person could correct, by unit."""
    model = explained.model
    if not isinstance(model, Intervenable) or explained.units.concepts is None:
        return {}
    chances = model.concept_probabilities(image.output.scores)[0].tolist()
    return {unit: f"here with probability {percent(chance, 0)}" for unit, chance in enumerate(chances)}


def _bars(image: ExplainedImage, explained: ExplainedModel) -> list[Bar]:
    """The lines, the rest and the sum on one scale; lines alone where nothing says that they add up."""
    (table, rows), names, notes = image.contrast, explained.class_names, _notes(image, explained)
    lines: list[tuple[str, float, UnitRow | None]] = [(row.name, table.shown(row.line), row) for row in rows]
    name = names[table.label]
    if table.bias is not None:
        others = [counted(table.others, f"other {table.worded}")] if table.others else []
        parts = [table.rest, table.bias, *filter(None, [table.residual])]
        others += ["the bias"] if table.amount(table.bias) else []
        others += ["what bypasses them"] if table.residual is not None else []
        rest = sum(map(table.amount, parts))
        lines += [(" and ".join(filter(None, [", ".join(others[:-1]), *others[-1:]])), rest, None)] if others else []
    total = table.amount(table.margin)
    scale = 50 / (max(abs(value) for _, value, _ in [*lines, ("", total, None)]) or 1.0)
    bars = [
        Bar(
            name,
            signed(value),
            round(abs(value) * scale, 2),
            "for" if value >= 0 else "against",
            row,
            notes.get(row.line.unit, "") if row else "",
        )
        for name, value, row in lines
    ]
    if table.bias is None:
        return bars
    lead = f"lead of {name} over {names[table.rival] if table.by == 'rival' else table.against}"
    return [*bars, Bar(lead, signed(total), round(abs(total) * scale, 2), "sum")]


def _path(image: ExplainedImage, name: str) -> list[Bar]:
    """The branches on the path through a tree, and what it and the other paths give a class, in probability."""
    table, rows = image.contrast
    lines: list[tuple[str, float, UnitRow | None]] = [
        (f"{row.name} is {row.line.branch}", row.line.contribution.value, row) for row in rows
    ]
    *_, by_path, elsewhere = sums = table.path_sums(name)
    lines += [(text, chance, None) for text, chance in [*sums[: bool(table.others)], by_path, elsewhere]]
    bars = [Bar(text, percent(chance), round(100 * chance, 2), "path", row) for text, chance, row in lines]
    return [*bars, Bar(name, percent(table.probability), round(100 * table.probability, 2), "sum")]
