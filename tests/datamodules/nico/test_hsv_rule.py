"""The colour rule of NICO: oracles, both sides of every bound, and a second computation on photos."""

import colorsys

import cv2
import numpy as np
import pytest

from protometry.datamodules.nico.hsv_rule import hsv_counts, hsv_group

ALL = 224 * 224


def uniform(color, shape=(30, 40)):
    return np.full((*shape, 3), color, np.uint8)


def two_colors(first, count, second):
    """A 224 x 224 image whose first ``count`` pixels have one colour and the others another."""
    image = np.full((ALL, 3), second, np.uint8)
    image[:count] = first
    return image.reshape(224, 224, 3)


def color_of(hsv):
    """An RGB colour that OpenCV turns into these hue, saturation and value."""
    others = np.arange(hsv[2] + 1, dtype=np.uint8)
    a, b = (side.ravel() for side in np.meshgrid(others, others))
    for place in range(3):  # of the brightest channel
        rgb = np.insert(np.stack([a, b], axis=1), place, hsv[2], axis=1)
        result = np.flatnonzero((cv2.cvtColor(rgb[None], cv2.COLOR_RGB2HSV)[0] == hsv).all(axis=1))
        if len(result):
            return rgb[result[0]]
    raise AssertionError(f"no colour has {hsv}")


@pytest.mark.parametrize(
    ("hsv", "inside"),
    [  # foliage, sky_water, pale
        ((39, 200, 200), (0, 0, 0)),
        ((40, 200, 200), (1, 0, 0)),
        ((89, 200, 200), (1, 0, 0)),
        ((90, 200, 200), (1, 1, 0)),
        ((91, 200, 200), (0, 1, 0)),
        ((130, 200, 200), (0, 1, 0)),
        ((131, 200, 200), (0, 0, 0)),
        ((60, 49, 255), (0, 0, 1)),
        ((60, 50, 255), (1, 0, 1)),
        ((60, 255, 255), (1, 0, 0)),
        ((105, 50, 255), (0, 1, 1)),
        ((105, 49, 255), (0, 0, 1)),
        ((60, 255, 49), (0, 0, 0)),
        ((60, 255, 50), (1, 0, 0)),
        ((120, 255, 49), (0, 0, 0)),
        ((120, 255, 50), (0, 1, 0)),
        ((0, 100, 255), (0, 0, 1)),
        ((0, 101, 255), (0, 0, 0)),
        ((0, 0, 99), (0, 0, 0)),
        ((0, 0, 100), (0, 0, 1)),
        ((0, 0, 255), (0, 0, 1)),
    ],
)
def test_both_sides_of_every_pixel_bound(hsv, inside):
    assert hsv_counts(uniform(color_of(hsv))) == tuple(ALL * hit for hit in inside)


@pytest.mark.parametrize(("counts", "group"), [
    ((0, 0, 35_001), "pale"), ((0, 0, 35_000), "rest"), ((20_000, 0, 35_001), "pale"), ((20_000, 0, 35_000), "foliage"),
    ((0, 15_001, 0), "sky_water"), ((0, 15_000, 0), "rest"), ((14_999, 15_001, 0), "sky_water"),
    ((15_000, 15_001, 0), "rest"), ((15_001, 0, 0), "foliage"), ((15_000, 0, 0), "rest"),
    ((15_001, 14_999, 0), "foliage"), ((15_001, 15_000, 0), "rest"), ((15_001, 15_001, 0), "rest"),
    ((15_000, 15_000, 0), "rest"),
])  # fmt: skip
def test_both_sides_of_every_count(counts, group):
    assert hsv_group(counts) == group


@pytest.mark.parametrize(("first", "count", "group"), [
    ((255, 255, 255), 35_000, "rest"), ((255, 255, 255), 35_001, "pale"), ((0, 255, 0), 15_000, "rest"),
    ((0, 255, 0), 15_001, "foliage"), ((0, 0, 255), 15_001, "sky_water"),
])  # fmt: skip
def test_pixels_of_an_image_are_counted(first, count, group):
    counts = hsv_counts(two_colors(first, count, (255, 0, 0)))
    assert (max(counts), hsv_group(counts)) == (count, group)


def test_random_pixels_by_definition():
    """Each pixel through ``colorsys``, away from the bounds by more than OpenCV's rounding."""
    rgb = np.random.default_rng(0).integers(0, 256, (ALL, 3), dtype=np.uint8)
    exact = np.array([colorsys.rgb_to_hsv(*(pixel / 255)) for pixel in rgb[:4000]]) * (180, 255, 255)
    bounds = ((40, 90, 130), (50, 100), (50, 100))
    clear = np.all([np.abs(exact[:, i, None] - bounds[i]).min(axis=1) > 1 for i in range(3)], axis=0)
    kept, (h, s, v) = rgb[:4000][clear], exact[clear].T
    image = np.full((ALL, 3), (255, 0, 0), np.uint8)
    image[: len(kept)] = kept
    colored = (s >= 50) & (v >= 50)
    expected = ((h >= 40) & (h <= 90) & colored, (h >= 90) & (h <= 130) & colored, (s <= 100) & (v >= 100))
    assert len(kept) > 2000
    assert hsv_counts(image.reshape(224, 224, 3)) == tuple(int(hits.sum()) for hits in expected)


@pytest.mark.parametrize("image", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4, 3))])
def test_other_images_are_refused(image):
    with pytest.raises(ValueError, match=r"`image` to be \(H, W, 3\) uint8, but got"):
        hsv_counts(image)
