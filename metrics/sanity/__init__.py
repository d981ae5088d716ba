"""Sanity: whether units lose their scores with what their maps mark, and whether maps need the trained weights."""

from protometry.metrics.entry import Family
from protometry.metrics.needs import unless
from protometry.metrics.sanity.deletion import DELETION, INSERTION, Deletion, Insertion
from protometry.metrics.sanity.randomisation import (
    RANK_CORRELATION,
    SIMILARITY,
    RandomisedRankCorrelation,
    RandomisedSimilarity,
)

__all__ = ["Deletion", "Insertion", "RandomisedRankCorrelation", "RandomisedSimilarity"]

FAMILY = Family(
    "sanity",
    "Does a unit see what its map marks, and does the map need what was learnt?",
    (DELETION, INSERTION, RANK_CORRELATION, SIMILARITY),
    needs={"backbone": lambda facts: unless(facts.has_backbone, "no parameter of the model is in a backbone group")},
    about="Of the top-5 units of an image, then over images. The control, `shifted`, is the same map moved by a random "
    "distance, around the border where it leaves the image: a map that marks nothing in particular has a lift of 0. "
    "Deletion and insertion leave out units without a positive score and take 43 forward passes each for an image: of "
    "more than 1,000 images, 1,000 are drawn by class, as for misalignment (`--attacked N`, `protocol.attacked`). "
    "Randomisation takes one forward pass and one more explanation; the model gets its weights back.",
)
