"""Sanity: whether units see what their maps mark, maps need the trained weights, and decisions need the prototypes."""

from protometry.metrics.entry import Family
from protometry.metrics.needs import unless
from protometry.metrics.sanity.deletion import DELETION, INSERTION, Deletion, Insertion
from protometry.metrics.sanity.exchange import (
    EXCHANGED_ACCURACY,
    EXCHANGED_AGREEMENT,
    ExchangedAccuracy,
    ExchangedAgreement,
)
from protometry.metrics.sanity.randomisation import (
    RANK_CORRELATION,
    SIMILARITY,
    RandomisedRankCorrelation,
    RandomisedSimilarity,
)

__all__ = [
    "Deletion",
    "ExchangedAccuracy",
    "ExchangedAgreement",
    "Insertion",
    "RandomisedRankCorrelation",
    "RandomisedSimilarity",
]

FAMILY = Family(
    "sanity",
    "Does a unit see what its map marks, does the map need what was learnt, and do decisions need the prototypes?",
    (DELETION, INSERTION, RANK_CORRELATION, SIMILARITY, EXCHANGED_ACCURACY, EXCHANGED_AGREEMENT),
    needs={
        "backbone": lambda facts: unless(facts.has_backbone, "no parameter of the model is in a backbone group"),
        "exchange": lambda facts: facts.exchange,
    },
    about="All but those with foreign patches are of the top-5 units of an image, then over images. Their control, "
    "`shifted`, is the same map moved by a random distance, around the border where it leaves the image: a map that "
    "marks nothing in particular has a lift of 0. Deletion and insertion leave out units without a positive score and "
    "take 43 forward passes each for an image: of more than 1,000, 1,000 are drawn by class, as for misalignment "
    "(`--attacked N`, `protocol.attacked`). Randomisation takes one forward pass and one more explanation; the model "
    "gets its weights back. Foreign patches take two passes over the training and validation images and one over the "
    "evaluated ones, and two last layers are fitted. `--foreign FILE`, a yaml file as in configs/data, takes the patch "
    "of other photos that is nearest to each prototype (`protocol.foreign`); the model stays as it is.",
)
