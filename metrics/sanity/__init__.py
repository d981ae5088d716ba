"""Sanity: whether maps mark what units need, and need the trained weights; decisions the prototypes, or a shortcut."""

from functools import partial

from protometry.metrics.entry import Family
from protometry.metrics.facts import Facts
from protometry.metrics.needs import unless
from protometry.metrics.sanity.deletion import DELETION, INSERTION, Deletion, Insertion
from protometry.metrics.sanity.exchange import (
    EXCHANGED_ACCURACY,
    EXCHANGED_AGREEMENT,
    ExchangedAccuracy,
    ExchangedAgreement,
)
from protometry.metrics.sanity.place import CELL_ALONE, GRADIENT_INSIDE, CellAlone, GradientInside
from protometry.metrics.sanity.randomisation import (
    LAST_STAGES,
    RANK_CORRELATION,
    SIMILARITY,
    STAGES,
    RandomisedRankCorrelation,
    RandomisedSimilarity,
)
from protometry.metrics.sanity.shortcut_success import SHORTCUT_SUCCESS, ShortcutSuccess
from protometry.metrics.sanity.shortcut_units import SHORTCUT_UNITS, ShortcutUnits

__all__ = [
    "CellAlone",
    "Deletion",
    "ExchangedAccuracy",
    "ExchangedAgreement",
    "GradientInside",
    "Insertion",
    "RandomisedRankCorrelation",
    "RandomisedSimilarity",
    "ShortcutSuccess",
    "ShortcutUnits",
]


def _at_least(count: int, facts: Facts) -> str | None:
    return unless(facts.stages >= count, f"the backbone has {facts.stages} stages with weights, fewer than {count}")


FAMILY = Family(
    "sanity",
    "Do maps mark what units see and need what was learnt, do decisions need the prototypes, was a shortcut learnt?",
    (
        *(DELETION, INSERTION, RANK_CORRELATION, SIMILARITY, *LAST_STAGES),
        *(CELL_ALONE, GRADIENT_INSIDE),
        *(EXCHANGED_ACCURACY, EXCHANGED_AGREEMENT, SHORTCUT_SUCCESS, SHORTCUT_UNITS),
    ),
    needs={
        "backbone": lambda facts: unless(facts.has_backbone, "no parameter of the model is in a backbone group"),
        **{f"stages@{count}": partial(_at_least, count) for count in STAGES},
        "exchange": lambda facts: facts.exchange,
        "stamp": lambda facts: unless(facts.stamp is not None, "no shortcut was planted"),
    },
    about="Deletion, insertion, randomisation and cells are of the top-5 units of an image, then over images. The "
    "control of the first three, `shifted`, is the same map moved by a random distance, around the border "
    "where it leaves the image: a map that marks nothing in particular has a lift of 0. Deletion and "
    "insertion leave out units without a positive score and take 71 forward passes each for an image: of more "
    "than 1,000, 1,000 are drawn by class, as for misalignment (`--attacked N`, `protocol.attacked`). "
    "Randomisation takes one forward pass and one more explanation; the model gets its weights back. The suite "
    "`sanity_full` adds `@1` and `@3` to the keys of randomisation: only the last stage, or the last three, are drawn "
    "again, as in the cascade of [A18]; stages are the blocks of a backbone that hold weights, the last with what "
    "follows it. "
    "`cell_alone` and `gradient_inside` need no map of pixels; their control is another cell, drawn at "
    "random, and the same images are drawn for them: 10 forward passes, and one with 5 backward passes. "
    "Foreign patches take two passes over the training and validation images and one over the evaluated ones, "
    "and two last layers are fitted. `--foreign FILE`, a yaml file as in configs/data, takes the patch of "
    "other photos that is nearest to each prototype (`protocol.foreign`); the model stays as it is. The "
    "shortcut is a patch in training images of one class (`--data.stamp`). It takes two forward passes; its "
    "control, `plain`, is a patch of the mean colour of the image in the same place.",
)
