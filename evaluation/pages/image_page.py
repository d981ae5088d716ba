"""The page of an image: how its logits come about, line by line and as bars, and what was measured on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from protometry.evaluation.explained.additive import AdditiveTable
from protometry.evaluation.explained.explained_model import ExplainedImage, UnitRow
from protometry.evaluation.explained.scan import samples_of
from protometry.evaluation.pages.contents import ReportContents
from protometry.evaluation.pages.corrections import corrections
from protometry.evaluation.pages.evaluation_files import EvaluationFiles
from protometry.evaluation.pages.site import Site, percent, signed
from protometry.evaluation.pages.tree_page import way


def image_pages(site: Site, contents: ReportContents) -> dict[str, dict[str, Any]]:
    """Write a page for every chosen image, and the list of them.

    Returns:
        Sample id -> what a list of images shows of it.
    """
    explained, outputs = contents.explained, contents.outputs
    samples = samples_of(contents.dataset, list(contents.image_links))
    cards = {}
    for image, sample in zip(explained.explain(samples, "the image page"), samples, strict=True):
        link, tables = contents.image_links[image.sample_id], with_bars(image, explained.class_names)
        site.page(
            link,
            "image",
            image=image,
            file=explained.datamodule.file_of(image.sample_id),
            tables=tables,
            way=way(explained, image),
            corrections=corrections(explained, image, sample),
            values=_values(contents.files, image.sample_id),
        )
        cards[image.sample_id] = {
            "image": image,
            "tables": tables,
            "picture": image.whole,
            "sample_id": image.sample_id,
            "link": link,
            "predicted": image.predicted,
            "notes": image.mistakes,
            "correct": image.correct,
        }
    site.page("images.html", "images", cards=cards.values(), total=len(outputs.sample_ids))
    return cards


def _values(files: EvaluationFiles, sample_id: str) -> list[tuple[str, float]]:
    """What the evaluation measured on one image."""
    if (values := files.images) is None or sample_id not in values.sample_ids:
        return []
    return list(zip(values.keys, values.rows([sample_id])[0].tolist(), strict=True))


@dataclass(frozen=True)
class Bar:
    """A line of a table as a bar: what it adds begins where the last line ended, the branches of a tree at 0.

    Args:
        left: of the bar, in percent of the scale.
        width: of the bar, in percent.
        kind: "for", "against" or "sum".
    """

    name: str
    value: str
    left: float
    width: float
    kind: str
    number: int | None = None


def with_bars(image: ExplainedImage, names: Sequence[str]) -> list[tuple[AdditiveTable, list[UnitRow], list[Bar]]]:
    """The tables of an image with their bars, all on one scale; none where there is nothing that adds up."""
    added = [_added(table, rows) if table.bias is not None else [] for table, rows in image.tables]
    ends = [end for lines in added for end in accumulate((value for *_, value in lines), initial=0.0)]
    low, high = min(ends), max(ends)
    scale = 100 / ((high - low) or 1.0)
    with_rows = []
    for (table, rows), lines in zip(image.tables, added, strict=True):
        on_path = table.tree_path is not None
        drawn = _path_bars(table, rows, names[table.label]) if on_path else _bars(table, lines, low, scale)
        with_rows.append((table, rows, drawn))
    return with_rows


def _added(table: AdditiveTable, rows: list[UnitRow]) -> list[tuple[int | None, str, float]]:
    """Number, name and value of every line of a table."""
    lines: list[tuple[int | None, str, float]] = [(row.number, row.title, row.line.total.value) for row in rows]
    return lines + [(None, text, amount.value) for text, amount in table.sums]


def _bars(table: AdditiveTable, added: list[tuple[int | None, str, float]], low: float, scale: float) -> list[Bar]:
    """The lines of a table as bars, each starting where the last one ends, up to the logit less the classes' mean."""
    bars, start = [], 0.0
    for number, name, value in added:
        left, kind = min(start, start + value) - low, "for" if value >= 0 else "against"
        bars.append(Bar(name, signed(value), round(left * scale, 2), round(abs(value) * scale, 2), kind, number))
        start += value
    if added:
        left, total = min(0.0, start) - low, signed(table.margin.value)
        bars.append(Bar(f"above {table.against}", total, round(left * scale, 2), round(abs(start) * scale, 2), "sum"))
    return bars


def _path_bars(table: AdditiveTable, rows: list[UnitRow], class_name: str) -> list[Bar]:
    """The branches on the path through a tree, and what it and the other paths give a class, in probability."""
    lines: list[tuple[int | None, str, float]] = [
        (row.number, f"{row.name} {row.line.branch}", row.line.contribution.value) for row in rows
    ]
    *_, by_path, elsewhere = sums = table.path_sums(class_name)
    lines += [(None, text, chance) for text, chance in [*sums[: bool(table.others)], by_path, elsewhere]]
    bars = [Bar(name, percent(chance), 0.0, round(100 * chance, 2), "for", number) for number, name, chance in lines]
    return [*bars, Bar(class_name, percent(table.probability), 0.0, round(100 * table.probability, 2), "sum")]
