"""The page of an image: how its logits come about, line by line and as bars, and what was measured on it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from reports.additive import AdditiveTable
from reports.explained_model import ExplainedImage, Row
from reports.html.contents import Contents
from reports.html.corrections import corrections
from reports.html.evaluation_files import EvaluationFiles
from reports.html.site import Site
from reports.html.tree_page import way
from reports.scan import samples_of

WIDTH = 400  # of the drawing of bars, in its own units


def image_pages(site: Site, contents: Contents) -> dict[str, dict[str, Any]]:
    """Write a page for every chosen image, and the list of them.

    Args:
        site: of the report.
        contents: of the report.

    Returns:
        Sample id -> what a list of images shows of it.
    """
    subject, seen = contents.subject, contents.seen
    samples = samples_of(contents.dataset, list(contents.image_links))
    cards = {}
    for image, sample in zip(subject.explain(samples, "the image page"), samples, strict=True):
        link = contents.image_links[image.sample_id]
        site.page(
            link,
            "image",
            image=image,
            tables=with_bars(image),
            way=way(subject, image),
            corrections=corrections(subject, image, sample),
            values=_values(contents.files, image.sample_id),
        )
        cards[image.sample_id] = {
            "picture": image.photo,
            "sample_id": image.sample_id,
            "link": link,
            "predicted": "nothing" if image.abstains else subject.class_names[image.predicted],
            "truth": ", ".join(image.truth),
            "correct": image.correct,
        }
    site.page("images.html", "images", cards=cards.values(), total=len(seen.sample_ids))
    return cards


def _values(files: EvaluationFiles, sample_id: str) -> list[tuple[str, float]]:
    """What the evaluation measured on one image."""
    if (values := files.images) is None or sample_id not in values.sample_ids:
        return []
    return list(zip(values.keys, values.rows([sample_id])[0].tolist(), strict=True))


@dataclass(frozen=True)
class Bar:
    """A line of an additive table as a bar that begins where the last one ended.

    Args:
        name: of the line.
        value: added, or the sum.
        left: of the bar in 0..400.
        width: of the bar, at least 1.
        kind: "for", "against" or "sum".
    """

    name: str
    value: float
    left: float
    width: float
    kind: str


def with_bars(image: ExplainedImage) -> list[tuple[AdditiveTable, list[Row], list[Bar]]]:
    """The tables of an image with their bars; none where contributions do not add up.

    Args:
        image: explained.
    """
    return [(table, rows, bars(table, rows) if table.bias is not None else []) for table, rows in image.tables]


def bars(table: AdditiveTable, rows: list[Row]) -> list[Bar]:
    """The lines of a table as bars on one scale, down to the logit less the mean over classes.

    Args:
        table: additive.
        rows: its lines with their names.
    """
    added = [(_with_same(row), row.line.total.value) for row in rows]
    added += [(text, amount.value) for text, amount in table.sums]
    ends = list(accumulate((value for _, value in added), initial=0.0))
    low, scale = min(ends), WIDTH / ((max(ends) - min(ends)) or 1.0)

    def bar(name: str, printed: float, start: float, change: float, kind: str) -> Bar:
        left, width = (min(start, start + change) - low) * scale, max(abs(change) * scale, 1.0)
        return Bar(name, printed, round(left, 2), round(width, 2), kind)

    drawn = [
        bar(name, value, start, value, "for" if value >= 0 else "against")
        for (name, value), start in zip(added, ends[:-1], strict=True)
    ]
    return [*drawn, bar(f"above {table.against}", table.margin.value, 0.0, ends[-1], "sum")]


def _with_same(row: Row) -> str:
    return f"{row.name} + {len(row.same)}" if row.same else row.name
