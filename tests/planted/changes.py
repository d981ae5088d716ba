"""What perturbations must change: completeness and continuity; see ``expectation``."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import norm

from tests.planted import by_definition as by
from tests.planted.expectation import CHANGES, PIXELS, SLOTS, averaged, truth
from tests.planted.models import GAINS, TEMPERATURE, CleverHans, HashUnits
from tests.planted.scenes import BRIGHTER, CLASSES, IMAGES, SHIFT, SIZE, SPOT, part_mask, scenes, unit_of


# -- completeness -----------------------------------------------------------------------------------------------------
@truth("parts", "background", family="completeness")
def local_units_are_complete():
    """Optimum, 0: a unit reads its own colour only, all of it lies in its box, and no pixel changes there.

    Noise is at most 4.33 x 0.05 = 0.217 in a channel, so a pixel of another colour stays 0.283 away, beyond the radius
    of 1/4. A stronger unit keeps more than half of its score unless all its pixels move by 2.5 standard deviations in
    some channel, which ten pixels or more do with a probability below 1e-14: ranks stay. The metrics cannot tell a part
    from the background.
    """
    return dict.fromkeys(("vlc", "vac", *CHANGES), 0.0)


def clever_gains(slot):
    """Of a part's unit before and after Hans's background has changed."""
    return GAINS[unit_of(slot, 0)], (CleverHans.PRESENT, *CleverHans.OTHERS)[slot]


def clever_changes():
    """What changes once Hans's units fire in the corner instead.

    Location and cell-wise change are at their worst, 1, because the corner shares no pixel with a part; the peak moves
    to the corner's first pixel. Ranks among the seven units go from 0, 1, 2, 3 to 6, 5, 4, 0, which no order exceeds.
    Scores go from one gain to the other.
    """

    def distance(scene, slot):
        x, y = by.first_pixel(part_mask(scene, slot))
        return abs(SIZE - SPOT - x) + abs(SIZE - SPOT - y)

    def score_change(scene, slot):
        before, after = clever_gains(slot)
        return (before - after) / before

    ranks = (6 + 4 + 2 + 3) / 4
    return {"plc": averaged(distance), "psc": averaged(score_change), "prc": ranks, "palc": 1.0, "pac": 1.0}


@truth("clever hans", family="completeness")
def clever_hans_is_incomplete():
    """Worst case: the noise around every box reaches the background that decides, whose mean deviation is about 0.04.

    The boxes before and after share nothing. Of the sorted values, n times the gain of the part and 16 times that of
    the corner, the first 16 pairs give minima.
    """

    def values_change(scene, slot):
        pixels, corner = int(part_mask(scene, slot).sum()), SPOT * SPOT
        before, after = clever_gains(slot)
        both = min(pixels, corner)
        larger = both * max(before, after) + (pixels - both) * before + (corner - both) * after
        return 1 - both * min(before, after) / larger

    return {"vlc": 1.0, "vac": averaged(values_change), **clever_changes()}


@truth("random", family="completeness")
def random_boxes_protect_by_chance():
    """Chance, of brittle units on 8 x 8 cells: what lies outside the box is lost, as a colour must match to 1/1024.

    The map is normal noise on the cells, enlarged cell by cell: strictly above its 0.95 quantile are the three largest
    of 64 cells, any three alike. All boxes and their probabilities are counted. Vlc and vac are 0, as the map does not
    depend on the image: they cannot tell. One pixel in 260,000 survives the noise in all three channels: 1e-4 allowed.
    """
    boxes, weights = by.boxes_of_three(8)
    moments = {key: [] for key in ("vlc", "vac", *CHANGES)}
    for scene in scenes():
        label, maps = int(scene["label"]), np.zeros((len(GAINS), 8, 8))
        for slot in SLOTS:
            unit = unit_of(slot, label)
            maps[unit] = GAINS[unit] * part_mask(scene, slot).reshape(8, 8, 8, 8).mean(axis=(1, 3))
        changes = [by.changes_outside(maps, unit_of(slot, label), boxes) for slot in SLOTS]
        for key, actual in moments.items():
            actual.append(by.image_first([change[key] for change in changes], weights))
    expected = {}
    for key, actual in moments.items():
        mean, variance, likely = np.array(actual).T
        spread = np.sqrt(np.sum(variance * likely)) / likely.sum()
        expected[key] = (
            float((mean * likely).sum() / likely.sum()),
            float(spread) + 1e-4 * (key not in ("vlc", "vac")),
        )
    return expected


@truth("prp", family="completeness")
def one_pixel_of_relevance_protects_one_pixel():
    """Chance, of what one pixel leaves unprotected: relevance starts in the first of the cells that fire most.

    With an identity for a backbone it stays in that pixel, which alone is protected. Its response stays 1, which noise
    cannot exceed elsewhere, and it is first among equals: peak, score, rank and the relevance itself stay. All colours
    of parts are 0 or 1, so that half of the noise is cut off: the largest deviation of three channels is below t with
    probability Φ(t / 0.05)³. A pixel loses that share of the radius, 1/4; beyond 1/8 it leaves the half of the map.
    """
    losses = (np.arange(20_000) + 0.5) / 20_000  # in units of the radius
    above = 1 - norm.cdf(losses / 4 / 0.05) ** 3
    loss, square = float(above.mean()), float((2 * losses * above).mean())
    gone = 1 - float(norm.cdf(2.5)) ** 3
    sizes = np.array([[part_mask(scene, slot).sum() for slot in SLOTS] for scene in scenes()])
    exposed, spread = float(((sizes - 1) / sizes).mean()), math.sqrt(float(((sizes - 1) / sizes**2).sum())) / sizes.size
    return {
        **dict.fromkeys(("vlc", "vac", "plc", "psc", "prc"), 0.0),
        "palc": (gone * exposed, math.sqrt(gone * (1 - gone)) * spread),
        "pac": (loss * exposed, math.sqrt(square - loss**2) * spread),
    }


# -- continuity -------------------------------------------------------------------------------------------------------
@truth("parts", "background", "random", family="continuity")
def the_same_view_changes_nothing():
    """Optimum, 0: equal images give equal bits. No metric of the family reads an explanation."""
    return dict.fromkeys((*CHANGES, "cac", "crc"), 0.0)


@truth("parts shifted", family="continuity")
def a_shifted_view_moves_maps():
    """Every map moves by three cells to the right and two down, with all its values.

    The peak moves by 3 + 2 cells. Maps are one value on the part and 0 elsewhere, so that both changes of maps are the
    share of the union that parts and shifted parts do not have in common. Scores, ranks and classes stay.
    """

    def moved(scene, slot):
        mask = part_mask(scene, slot)
        return by.unshared(mask, np.roll(mask, SHIFT[::-1], axis=(0, 1)))

    share = averaged(moved)
    return {"plc": 5.0, "palc": share, "pac": share, "psc": 0.0, "prc": 0.0, "cac": 0.0, "crc": 0.0}


@truth("parts brighter", "background brighter", family="continuity")
def a_brighter_view_weakens_all_alike():
    """Every colour has a channel below 1, which is now 1/32 off, an eighth of the radius: responses fall from 1 to 7/8.

    Map and score change by 1/8; places and ranks stay. Class logits fall from 1000 to 875, others stay 3/4 (and 7/8 of
    it) or so: the softmax is 0 and 1 in float64 before and after.
    """
    eighth = BRIGHTER * 4
    return {"plc": 0.0, "palc": 0.0, "pac": eighth, "psc": eighth, "prc": 0.0, "cac": 0.0, "crc": 0.0}


@truth("clever hans", family="continuity")
def clever_hans_is_discontinuous():
    """Worst case: 1/32 of brightness is four times what Hans bears.

    Of the four classes the true one goes from the first to the last rank: 3, the most there is. Its probability goes
    from 1 to exp(1000 (1/128 - 1/16)) / 3 < 1e-23 of 1: nothing is shared.
    """
    assert math.exp(TEMPERATURE * (CleverHans.PRESENT - CleverHans.ABSENT)) < 1e-23
    return {**clever_changes(), "cac": 1.0, "crc": CLASSES - 1.0}


@truth("hash", family="continuity")
def a_hash_has_no_continuity():
    """Chance: the two maps of a unit are independent, all cells uniform on [0, 1).

    Peaks: per axis E|i - j| = (n^2 - 1) / 3n and E(i - j)^2 = (n^2 - 1) / 6. Halves: IoU = 1/4 / 3/4. Minima and
    maxima: 1/3 / 2/3; ratio variances by linearisation over the cells. Scores are 1 - e / n^2 with e exponential, of
    which the four smallest of 12 are selected: exp(-e) is then the order statistic (12 - j) / 13, e the sum of
    1 / (12 - i), and E|e' - e| = e - 1 + 2 exp(-e). The new rank is any of 12, the predicted class any of 4; logits are
    1e9 times the scores.
    """
    units, n, samples = HashUnits.UNITS, SIZE, IMAGES * 4
    square = (n * n - 1) / 6
    peaks = 2 * (n * n - 1) / (3 * n), math.sqrt(2 * (square - ((n * n - 1) / (3 * n)) ** 2) / samples)
    halves = 2 / 3, math.sqrt(1 / 3 * 2 / 3 / (0.75 * PIXELS) / samples)
    minima = 1 / 2, math.sqrt((1 / 6 + 1 / 8 - 1 / 4) / PIXELS) / (2 / 3) / math.sqrt(samples)
    gaps = [sum(1 / (units - i) for i in range(j + 1)) - 1 + 2 * (units - j) / (units + 1) for j in range(4)]
    moves = [abs(rank - new) for rank in range(4) for new in range(units)]
    rank = float(np.mean(moves)), float(np.std(moves)) / math.sqrt(IMAGES)  # as if the units of an image moved together
    return {
        "plc": peaks,
        "palc": halves,
        "pac": minima,
        "psc": (float(np.mean(gaps)) / PIXELS, 1.2 / PIXELS / math.sqrt(samples)),
        "prc": rank,
        "cac": (3 / 4, math.sqrt(3 / 16 / IMAGES)),
        "crc": (1.5, math.sqrt(15 / 12 / IMAGES)),
    }
