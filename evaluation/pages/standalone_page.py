"""The page of one explained image, which holds its pictures."""

from __future__ import annotations

from protometry.evaluation.explained.explained_model import ExplainedImage, ExplainedModel
from protometry.evaluation.pages.contrast import contrast_of
from protometry.evaluation.pages.site import Site


def standalone_page(image: ExplainedImage, explained: ExplainedModel) -> str:
    """The text of the page."""
    return Site(None).page("", "standalone", image=image, model=explained, contrast=contrast_of(image, explained))
