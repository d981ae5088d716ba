"""Where explanations must lie: complexity, localisation and alignment; see ``expectation``."""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import binom

from tests.planted import by_definition as by
from tests.planted.expectation import DRAWN, HALF_WIDTH, PATCH, PIXELS, SLOTS, SPATIAL, averaged, truth
from tests.planted.models import GAINS, CleverHans, HashUnits
from tests.planted.scenes import CLASSES, IMAGES, SIZE, SPOT, birds, part_mask, points, scenes, spot_mask, unit_of


# -- complexity and localisation --------------------------------------------------------------------------------------
def share_of_object(scene, slot):
    return int(part_mask(scene, slot).sum()) / int(scene["object_mask"].sum())


def coverage(region):
    """Consistency of complexity: for every unit the mean over the parts ever hit of hits / visible, then over units.

    0 for a unit that hits none. ``region(scene, slot)`` is a mask.
    """
    hits, visible = np.zeros((len(GAINS), 15)), np.zeros((len(GAINS), 15))
    for scene in scenes():
        for slot in SLOTS:
            unit, box = unit_of(slot, int(scene["label"])), by.box_of(region(scene, slot))
            for j, point in points(scene).items():
                visible[unit, j] += 1
                hits[unit, j] += by.holds(box, point)
    return float(np.mean([(h[h > 0] / v[h > 0]).mean() if h.any() else 0 for h, v in zip(hits, visible, strict=True)]))


@truth("parts", "clever hans", family="complexity")
def parts_lie_on_the_object():
    """The region is the part: fewer than 5 % of the pixels, all with one value, the others 0.

    Optimum for the background overlap, 0, and the difference inside minus outside, 1 - 0. The object overlap is the
    part's share of the object; the box of a wing may hold other points in some images, so that consistency is counted.
    Hans looks just as good.
    """
    return {
        "object_overlap": averaged(share_of_object),
        "background_overlap": 0.0,
        "iord": 1.0,
        "consistency": coverage(part_mask),
    }


@truth("background", family="complexity")
def spots_lie_on_the_background():
    """Worst case: all of the region outside, no part in it. An object overlap of 0 is the best: it cannot tell."""
    return {"object_overlap": 0.0, "background_overlap": 1.0, "iord": -1.0, "consistency": 0.0}


@truth("eye", family="complexity")
def the_eye_alone_is_ideal():
    """With the eye as the object the region is the object: overlaps 1 and 0, difference 1.

    Optimum for consistency too: in the images shown, the box holds the eye's point and no other.
    """
    return {"object_overlap": 1.0, "background_overlap": 0.0, "iord": 1.0, "consistency": 1.0}


def peak_pixel(scene, slot):
    """The first pixel of a part alone."""
    mask = np.zeros((SIZE, SIZE), dtype=bool)
    x, y = by.first_pixel(part_mask(scene, slot))
    mask[y, x] = True
    return mask


def pixel_of_object(scene, slot):
    return 1 / int(scene["object_mask"].sum())


@truth("prp", family="complexity")
def relevance_is_one_pixel_of_the_part():
    """The region is the first pixel of the part, in which relevance starts and, without a backbone, stays."""
    covered = {"object_overlap": averaged(pixel_of_object), "consistency": coverage(peak_pixel)}
    return {**covered, "background_overlap": 0.0, "iord": 1.0}


@truth("prp", family="localisation")
def relevance_is_found_on_the_object():
    """Optimum for peak and energy, 1; one pixel in common with the object."""
    return {"pointing_game": 1.0, "energy": 1.0, "iou": averaged(pixel_of_object)}


@truth("random", family="complexity")
def random_regions_are_anywhere():
    """Chance: the region is 205 of 4096 pixels, any as likely as any other; i of them in an object of m.

    E i = 205 m / 4096, hypergeometric. Inside and outside are exchangeable: their difference is 0 on average; its
    variance is at most var(z | z > 1.645) / 3^2 (1/i + 1/(205 - i)), as the largest of 4096 normal numbers exceeds 3.
    The box misses a point that is four pixels from the border or more with a probability below 4 (1 - 1/16)^205 < 1e-5:
    consistency is 1, the optimum, and cannot tell scattered regions from good ones.
    """
    inside, outside, differences = [], [], []
    for scene in scenes():
        size = int(scene["object_mask"].sum())
        counts, weights = by.hits(PIXELS, DRAWN, size)
        inside.append(by.moments(counts / size, weights))
        outside.append(by.moments(1 - counts / DRAWN, weights))
        differences.append(
            0.1384 / 9 * (weights / np.maximum(counts, 1) + weights / np.maximum(DRAWN - counts, 1)).sum()
        )
        assert all(4 <= value < SIZE - 4 for point in points(scene).values() for value in point)
    return {
        "object_overlap": by.mean_over_images(*zip(*inside, strict=True), 4),
        "background_overlap": by.mean_over_images(*zip(*outside, strict=True), 4),
        "iord": by.mean_over_images([0.0] * IMAGES, differences, 4),
        "consistency": 1.0,
    }


@truth("parts", "clever hans", family="localisation")
def parts_are_found_on_the_object():
    """Optimum for peak and energy, 1. A region inside the object has |part| / |object| in common with it."""
    return {"pointing_game": 1.0, "energy": 1.0, "iou": averaged(share_of_object)}


@truth("background", family="localisation")
def spots_are_off_the_object():
    """Worst case, 0."""
    return {"pointing_game": 0.0, "energy": 0.0, "iou": 0.0}


@truth("eye", family="localisation")
def the_eye_is_found():
    """Optimum, 1: the region is the object."""
    return {"pointing_game": 1.0, "energy": 1.0, "iou": 1.0}


@truth("random", family="localisation")
def random_maps_point_anywhere():
    """Chance: peak and energy hit the object with its share p of the image; the region has i / (205 + m - i) in common.

    The variance of the energy is p (1 - p) (Σw² - 1/4096) with w the shares of the pixels: Σw² = (1/2) / (1/√2π)² /
    4096 for the positive half of normal numbers.
    """
    peaks, energies, shared = [], [], []
    for scene in scenes():
        size = int(scene["object_mask"].sum())
        counts, weights = by.hits(PIXELS, DRAWN, size)
        share = size / PIXELS
        peaks.append((share, share * (1 - share)))
        energies.append((share, share * (1 - share) * (math.pi - 1) / PIXELS))
        shared.append(by.moments(counts / (DRAWN + size - counts), weights))
    result = {"pointing_game": peaks, "energy": energies, "iou": shared}
    return {key: by.mean_over_images(*zip(*values, strict=True), 4) for key, values in result.items()}


# -- alignment --------------------------------------------------------------------------------------------------------
def misalignment(*values: float) -> dict[str, float]:
    """The same of the attack and of the noise it starts from."""
    names = [f"misalignment_{kind}{part}" for kind in ("", "noise_") for part in SPATIAL]
    return dict(zip(names, values * 2, strict=True))


@truth("parts", "random", family="alignment")
def parts_are_aligned():
    """Optimum. The peak is the mark on the part's point, in every image, so that its window and its patch hold it.

    Stability noise is at most 1/32, an eighth of the radius: the mark keeps 7/8, the rest of the part at 1/2 stays
    below 5/8. The attack moves pixels outside the part by at most 1/20, too little to reach the colour of a unit, so
    that neither the target nor a stranger moves. No metric of the family reads an explanation.
    """
    best = {"consistency": 1.0, "stability": 1.0, "stability_nonempty": 1.0, "purity": 1.0}
    return {**best, "on_object": 1.0, "parts_covered": len(SLOTS), **misalignment(0.0, 0.0, 0.0, 0.0)}


@truth("background", family="alignment")
def spots_are_not_aligned():
    """Worst case for all that looks for an object or its parts, 0: no point is within 14 pixels of a corner.

    Stability cannot tell, as nothing found twice is the same twice: 1. Among the images with a part found there is
    none: undefined. Misalignment cannot tell either: the box protects the spot.
    """
    for scene in scenes():
        for slot in SLOTS:
            (x0, y0), reach = by.first_pixel(spot_mask(scene, slot)), SPOT + HALF_WIDTH
            assert not any(
                by.holds((x0 - reach, y0 - reach, x0 + reach, y0 + reach), p) for p in points(scene).values()
            )
    worst = {"consistency": 0.0, "stability": 1.0, "stability_nonempty": math.nan, "purity": 0.0}
    return {**worst, "on_object": 0.0, "parts_covered": 0.0, **misalignment(0.0, 0.0, 0.0, 0.0)}


@truth("clever hans", family="alignment")
def clever_hans_is_misaligned():
    """Clean images show nothing of it: its units find their parts. Everything else is at its worst.

    Noise of standard deviation 1/40 and the attack's start, uniform up to 1/20, deviate by 1/50 and 1/40 on average,
    with 144 values certainly more than 1/128: all units fire in the last corner. No part is found there: stability 0.
    The best unit, the beak, falls from 1 to 1/128; its region and the corner share nothing; the three beaks of other
    classes overtake it; the right class is lost.
    """
    clean = {"consistency": 1.0, "purity": 1.0, "on_object": 1.0, "parts_covered": len(SLOTS)}
    worst = {"stability": 0.0, "stability_nonempty": 0.0}
    return {**clean, **worst, **misalignment(1 - CleverHans.PRESENT, 1.0, CLASSES - 1.0, 1.0)}


@truth("hash", family="alignment")
def a_hash_points_anywhere():
    """Chance: the peak is any pixel, another one under noise, which turns the hash 25 times round.

    Consistency and parts covered: to hold a part in half of the images has a probability below 1e-3 with a window of
    441 of 4096 pixels: 0. On the object: the share of the object, with the spread of so many draws of a pixel.
    Stability: with p the share of pixels from which a set of points is found, Σp² over the sets, or over those not
    empty relative to Σp; three draws share the clean image. Purity: simulated from the definition. Misalignment: the
    box around 205 scattered pixels, grown by three, leaves out no pixel (probability below 1e-3): nothing changes, and
    the metric cannot tell.
    """
    units, every = HashUnits.UNITS, [points(scene) for scene in scenes()]
    seen = np.bincount([j for result in every for j in result])
    window = (2 * HALF_WIDTH + 1) ** 2 / PIXELS
    assert units * binom.sf(np.ceil(0.5 * seen[seen > 0]) - 1, seen[seen > 0], window).sum() < 1e-3
    assert 4 * IMAGES * (1 - 4 / SIZE) ** DRAWN < 1e-3
    means, variances, covered, agreed, shares = [], [], 0.0, 0.0, []
    for result in every:
        sets, counts = np.unique(by.windows(SIZE, HALF_WIDTH, result), return_counts=True)
        p = counts / PIXELS
        means.append(float((p**2).sum()))
        variances.append(float((p**3).sum() - means[-1] ** 2 + (p**2 * (1 - p)).sum() / 3))
        shares.append(p[sets > 0])
        covered, agreed = covered + shares[-1].sum(), agreed + (shares[-1] ** 2).sum()
    ratio = agreed / covered
    squares = sum((p * ((p - ratio) ** 2 + p * (1 - p) / 3)).sum() for p in shares)
    hit = averaged(lambda scene, slot: float(scene["object_mask"].double().mean()))
    purity, spread = by.random_purity(every, birds().tables.part_to_group.tolist(), SIZE, PATCH)
    return {
        "consistency": 0.0,
        "stability": by.mean_over_images(means, variances, units),
        "stability_nonempty": (float(ratio), math.sqrt(squares / units) / covered),
        "purity": (purity, spread / math.sqrt(units)),
        "on_object": (hit, math.sqrt(hit * (1 - hit) / (4 * IMAGES))),
        "parts_covered": 0.0,
        **misalignment(0.0, 0.0, 0.0, 0.0),
    }
