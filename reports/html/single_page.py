"""One explained image as a page that holds its pictures."""

from __future__ import annotations

from reports.additive import AdditiveTable
from reports.explained_model import ExplainedImage, ExplainedModel, Row
from reports.html.site import Site
from reports.html.waterfall import Bar, bars


def single_page(explained: ExplainedImage, subject: ExplainedModel) -> str:
    """The text of the page.

    Args:
        explained: the image.
        subject: the model that explained it.
    """
    return Site(None).page("", "single", image=explained, model=subject, tables=with_bars(explained))


def with_bars(explained: ExplainedImage) -> list[tuple[AdditiveTable, list[Row], list[Bar]]]:
    """The tables of an image with their bars; none where contributions do not add up.

    Args:
        explained: the image.
    """
    return [(table, rows, bars(table, rows) if table.bias is not None else []) for table, rows in explained.tables]
