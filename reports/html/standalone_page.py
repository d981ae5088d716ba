"""One explained image as a page that holds its pictures, and as a picture."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from explanations.views import png
from reports.additive import AdditiveTable
from reports.explained_figure import explained_figure
from reports.explained_model import ExplainedImage, ExplainedModel, Row
from reports.html.image_page import Bar, bars
from reports.html.site import Site, key_of
from run_folder.atomic import write_whole


def write_explained(subject: ExplainedModel, samples: Sequence[Mapping[str, Any]], folder: Path) -> list[str]:
    """Explain images, each by a picture and a page named after it; two of one name get the key of their ids, too.

    Args:
        subject: the model.
        samples: of the data, or photos.
        folder: of the files.

    Returns:
        A line for each image: what the model sees in it, and where the files lie.

    Raises:
        ValueError: if the contributions do not sum to the logit.
    """
    written: list[str] = []
    lines = []
    for explained in subject.explain(samples, "the page"):
        name = re.sub(r"[^\w=-]+", "-", explained.sample_id)[:100].strip("-") or key_of(explained.sample_id)
        name += f"-{key_of(explained.sample_id)}" if name in written else ""
        written.append(name)
        write_whole(folder / f"{name}.png", png(explained_figure(explained, subject)))
        write_whole(folder / f"{name}.html", single_page(explained, subject))
        said = subject.class_names[explained.predicted]
        lines.append(f"{explained.sample_id}: {said}, see {folder / name}.html and .png")
    return lines


def single_page(explained: ExplainedImage, subject: ExplainedModel) -> str:
    """The text of the page.

    Args:
        explained: the image.
        subject: the model that explained it.
    """
    return Site(None).page("", "standalone", image=explained, model=subject, tables=with_bars(explained))


def with_bars(explained: ExplainedImage) -> list[tuple[AdditiveTable, list[Row], list[Bar]]]:
    """The tables of an image with their bars; none where contributions do not add up.

    Args:
        explained: the image.
    """
    return [(table, rows, bars(table, rows) if table.bias is not None else []) for table, rows in explained.tables]
