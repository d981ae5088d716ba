"""The page of one explained image, which holds its pictures."""

from __future__ import annotations

from protometry.evaluation.explained.explained_model import ExplainedImage, ExplainedModel
from protometry.evaluation.pages.image_page import with_bars
from protometry.evaluation.pages.site import Site


def standalone_page(image: ExplainedImage, explained: ExplainedModel) -> str:
    """The text of the page."""
    tables = with_bars(image, explained.class_names)
    return Site(None).page("", "standalone", image=image, model=explained, tables=tables)
