"""What `evaluate.py explain` writes of an image: a page that holds its pictures, and one picture."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from protometry.explanations.views import png
from protometry.reports.explained_figure import explained_figure
from protometry.reports.explained_model import ExplainedImage, ExplainedModel
from protometry.reports.html.image_page import with_bars
from protometry.reports.html.site import Site, key_of
from protometry.run_folder.atomic import write_atomic


def write_explained(explained: ExplainedModel, samples: Sequence[Mapping[str, Any]], folder: Path) -> list[str]:
    """Explain images, each by a picture and a page named after it, and numbered where such files are there already.

    Returns:
        A line for each image: what the model sees in it, and where the files lie.

    Raises:
        ValueError: if the contributions do not sum to the logit.
    """
    lines = []
    for image in explained.explain(samples, "the page"):
        name = re.sub(r"[^\w=-]+", "-", image.sample_id)[:100].strip("-") or key_of(image.sample_id)
        numbered = (name if number == 1 else f"{name}-{number}" for number in count(1))
        name = next(each for each in numbered if not any(folder.glob(f"{each}.*")))
        write_atomic(folder / f"{name}.png", png(explained_figure(image, explained)))
        write_atomic(folder / f"{name}.html", standalone_page(image, explained))
        said = "the model abstains" if image.abstains else explained.answer(image)
        lines.append(f"{image.sample_id}: {said}, see {folder / name}.html and .png")
        lines += [f"  {caution}" for caution in explained.cautions(image)]
    return lines


def standalone_page(image: ExplainedImage, explained: ExplainedModel) -> str:
    """The text of the page."""
    tables = with_bars(image, explained.class_names)
    return Site(None).page("", "standalone", image=image, model=explained, tables=tables)
