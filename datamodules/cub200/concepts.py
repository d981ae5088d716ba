"""The attributes of CUB-200-2011 that serve as concepts, and the classes that have them.

Sources: Wah et al. 2011 (312 attributes), Koh et al. 2020, *Concept Bottleneck Models* (the 112 and the vote rule).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from protometry.datamodules.arguments import check_choice
from protometry.datamodules.cub200.attributes import IMAGE_LABELS, NAMES, NOT_VISIBLE, Attributes
from protometry.datamodules.photos.class_attributes import votes

Selection = Literal["fixed", "vote", "all"]
VOTE_CLASSES = 10
# 0-based indices into the 312 attributes; the ids in attributes.txt are one larger
# fmt: off
FIXED = (
    1, 4, 6, 7, 10, 14, 15, 20, 21, 23, 25, 29, 30, 35, 36, 38, 40, 44, 45, 50, 51, 53, 54, 56, 57, 59, 63, 64, 69,
    70, 72, 75, 80, 84, 90, 91, 93, 99, 101, 106, 110, 111, 116, 117, 119, 125, 126, 131, 132, 134, 145, 149, 151,
    152, 153, 157, 158, 163, 164, 168, 172, 178, 179, 181, 183, 187, 188, 193, 194, 196, 198, 202, 203, 208, 209,
    211, 212, 213, 218, 220, 221, 225, 235, 236, 238, 239, 240, 242, 243, 244, 249, 253, 254, 259, 260, 262, 268,
    274, 277, 283, 289, 292, 293, 294, 298, 299, 304, 305, 308, 309, 310, 311,
)
# fmt: on
FIXED_FROM = 312


@dataclass(frozen=True)
class KeptConcepts:
    """The attributes that were kept as L concepts.

    Args:
        indices: ``(L,)`` int64 into the attributes.
        binary: ``(K, L)`` bool, which class has which concept.
        source: where ``binary`` comes from, to be stored with results.
    """

    indices: NDArray[np.int64]
    binary: NDArray[np.bool_]
    source: str


def majority_votes(attributes: Attributes, labels: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """``(K, A)`` bool: which classes have which attributes by the image labels of the training images, ``rows``.

    Koh et al. 2020: "absent" answers for invisible parts are skipped, a tie counts as present.

    Raises:
        ValueError: if there are no image labels.
    """
    if attributes.present is None or attributes.certainty is None:
        raise ValueError(f"Expected {IMAGE_LABELS} to be under `root`, but it is not; use `concept_selection: fixed`.")
    seen = attributes.certainty[rows] != NOT_VISIBLE
    present, absent = votes(attributes.present[rows], seen, labels[rows], len(attributes.continuous))
    return np.asarray(present >= absent)


def select_concepts(
    attributes: Attributes, selection: Selection, labels: NDArray[np.int64], rows: NDArray[np.int64]
) -> KeptConcepts:
    """Choose the concepts and say which classes have them.

    Args:
        attributes: the tables.
        selection: ``fixed`` keeps the published 112, ``vote`` those that at least 10 classes have by
            :func:`majority_votes`, ``all`` every attribute.
        labels: ``(n,)`` class index of every image.
        rows: indices of the training images, whose votes count.

    Returns:
        The concepts; ``binary`` holds the votes if there are image labels, else continuous >= 50 %.

    Raises:
        ValueError: if the selection is unknown or impossible with these tables.
    """
    check_choice("concept_selection", selection, get_args(Selection))
    count = len(attributes.names)
    if attributes.present is None:
        binary, source = attributes.continuous >= 0.5, "class attribute table >= 50 %"
    else:
        binary, source = majority_votes(attributes, labels, rows), "majority of training image labels"
    if selection == "fixed":
        if count != FIXED_FROM:
            raise ValueError(
                f"Expected {NAMES} to list {FIXED_FROM} attributes for `concept_selection: fixed`, but got {count}. "
                "Use `concept_selection: all`."
            )
        indices = np.array(FIXED)
    elif selection == "vote":
        indices = np.flatnonzero(majority_votes(attributes, labels, rows).sum(axis=0) >= VOTE_CLASSES)
    else:
        indices = np.arange(count)
    if not len(indices):
        raise ValueError(
            f"Expected `concept_selection: vote` to keep attributes of at least {VOTE_CLASSES} classes, but none is "
            "left. Use `concept_selection: fixed`."
        )
    return KeptConcepts(indices, binary[:, indices], source)
