"""The placement of photos against the same steps in albumentations, whose parameters are checked not to be ignored."""

import warnings

import albumentations as A
import cv2
import numpy as np
import pytest

from protometry.datamodules.transforms.placement import box_on_photo, place, place_points

SHAPES = [(60, 90), (90, 60), (33, 47), (200, 31), (7, 300), (48, 64), (1, 1)]
FRAMES = [(32, 32), (48, 64), (130, 90)]
GEOMETRIES = ("stretch", "letterbox", "shorter_crop", "center_crop")


def reference(frame, geometry, resize_filter, shape):
    """The steps as a strict pipeline, in which an unknown argument is an error.

    Where one side shrinks and the other grows, its area filter does not average: there the side shrinks first.
    """
    height, width = frame
    filters = {
        "interpolation": cv2.INTER_LINEAR,
        "mask_interpolation": cv2.INTER_NEAREST_EXACT,
        "area_for_downscale": "image" if resize_filter == "area" else None,
        "p": 1.0,
    }
    fill = {"border_mode": cv2.BORDER_CONSTANT, "fill": 0, "fill_mask": 0, "p": 1.0}
    cut = A.CenterCrop(height=height, width=width, pad_if_needed=True, **fill)
    steps = {
        "stretch": [A.Resize(height=height, width=width, **filters)],
        "letterbox": [
            A.LongestMaxSize(max_size_hw=frame, **filters),
            A.PadIfNeeded(min_height=height, min_width=width, **fill),
        ],
        "shorter_crop": [A.SmallestMaxSize(max_size_hw=frame, **filters), cut],
        "center_crop": [cut],
    }[geometry]
    if geometry == "stretch" and resize_filter == "area":
        shrunk = {"height": min(height, shape[0]), "width": min(width, shape[1])}
        steps = [A.Resize(**shrunk, **filters), *steps]
    return A.Compose(steps, strict=True)


@pytest.mark.parametrize("resize_filter", ["area", "linear"])
@pytest.mark.parametrize(("shape", "frame"), [((4, 300), (8, 8)), ((5, 901), (10, 14)), ((8, 2000), (4, 4))])
def test_a_very_long_photo_is_cut_before_it_is_resized(shape, frame, resize_filter):
    """With the same pixels, labels and points, lying or standing; 2 x 50,000 pixels would need gigabytes."""
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    whole = reference(frame, "shorter_crop", resize_filter, shape)(image=image, mask=image[..., 0])
    placement = place(shape, frame, "shorter_crop")
    assert placement.resized[1] <= 8 * max(frame)
    np.testing.assert_array_equal(placement.image(image, resize_filter), whole["image"])
    np.testing.assert_array_equal(placement.labels(image[..., 0]), whole["mask"])
    standing = place(shape[::-1], frame[::-1], "shorter_crop")
    pixels = standing.image(image.swapaxes(0, 1).copy(), resize_filter).swapaxes(0, 1).astype(int)
    assert abs(pixels - whole["image"]).max() <= 1
    middle = place_points(np.array([[[shape[1] / 2, shape[0] / 2]]]), [placement])
    np.testing.assert_allclose(middle[0, 0], (frame[1] / 2, frame[0] / 2), atol=0.5)
    assert max(place((2, 50_000), (224, 224), "shorter_crop").resized) <= 8 * 224


@pytest.mark.parametrize("resize_filter", ["area", "linear"])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_pixels_as_in_albumentations(geometry, resize_filter):
    generator = np.random.default_rng(0)
    for frame in FRAMES:
        for shape in SHAPES:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                pipeline = reference(frame, geometry, resize_filter, shape)
            image = generator.integers(0, 256, (*shape, 3), dtype=np.uint8)
            labels = generator.integers(0, 256, shape, dtype=np.uint8)
            codes = reference(frame, geometry, "linear", shape)(image=image, mask=labels)["mask"]
            placement = place(shape, frame, geometry)
            np.testing.assert_array_equal(placement.image(image, resize_filter), pipeline(image=image)["image"])
            np.testing.assert_array_equal(placement.labels(labels), codes)


def test_the_area_filter_averages_where_one_side_grows():
    """Stripes of 0, 0, 255 side by side become their mean, whatever the height does."""
    stripes = np.tile(np.array([0, 0, 255], np.uint8), 30)
    for height in (20, 30, 31, 90):
        image = np.repeat(np.tile(stripes, (height, 1))[..., None], 3, axis=2)
        assert (place((height, 90), (30, 30), "stretch").image(image, "area") == 85).all()


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_a_point_follows_its_pixels(geometry):
    """The centre of a block of equal pixels stays its centre, to the pixel that rounding of the block's edges takes."""
    for shape in [(300, 400), (400, 300), (210, 333)]:
        for frame in [(96, 96), (64, 120)]:
            labels = np.zeros(shape, np.uint8)
            labels[shape[0] // 2 - 20 : shape[0] // 2 + 20, shape[1] // 2 - 10 : shape[1] // 2 + 10] = 9
            placement = place(shape, frame, geometry)
            rows, columns = np.nonzero(placement.labels(labels))
            ((x, y),) = place_points(np.array([[shape[1] // 2, shape[0] // 2]], dtype=np.float64)[None], [placement])[0]
            assert abs(columns.mean() + 0.5 - x) <= 0.75
            assert abs(rows.mean() + 0.5 - y) <= 0.75


def test_by_hand():
    # letterbox: 60x90 -> 30x45, 15 rows are empty, 7 of them above
    assert place((60, 90), (45, 45), "letterbox").shift == (7, 0)
    # shorter_crop: 60x90 -> 30x45, 15 columns too many, 7 of them cut on the left
    assert place((60, 90), (30, 30), "shorter_crop").shift == (0, -7)
    # center_crop: 20 columns too few, 13 rows too many
    placement = place((33, 80), (20, 100), "center_crop")
    assert (placement.resized, placement.shift) == ((33, 80), (-6, 10))
    # stretch: half and a third
    assert place_points(np.array([[[9.0, 4.0]]]), [place((60, 90), (30, 30), "stretch")]).tolist() == [[[3.0, 2.0]]]


def test_whole_results_are_exact():
    """129 * 224 / 336 = 86, while 129 * (224 / 336) is 85.99999999999999 and lies in another pixel."""
    points = place_points(np.array([[[129.0, 129.0]]]), [place((336, 336), (224, 224), "stretch")])[0]
    assert np.floor(points).tolist() == [[86, 86]]


def test_points_follow_the_rounded_size():
    # 100x7 into 50x50: the width 3.5 becomes 4, so the right edge at 7 goes to 4 (and 23 columns of padding)
    placement = place((100, 7), (50, 50), "letterbox")
    assert placement.resized == (50, 4)
    assert place_points(np.array([[[7.0, 100.0]]]), [placement]).tolist() == [[[27.0, 50.0]]]


def test_never_less_than_a_pixel():
    placement = place((3, 900), (30, 30), "letterbox")
    assert placement.resized == (1, 30)
    assert placement.image(np.full((3, 900, 3), 9, np.uint8), "area").sum() == 9 * 30 * 3


def test_an_unchanged_photo_is_not_copied():
    image = np.zeros((20, 30, 3), np.uint8)
    assert np.shares_memory(place((20, 30), (20, 30), "letterbox").image(image, "area"), image)


@pytest.mark.parametrize("geometry", ["stretch", "letterbox", "shorter_crop", "center_crop"])
@pytest.mark.parametrize("shape", [(37, 90), (90, 37), (20, 20), (3000, 20)])
def test_a_box_is_that_of_the_pixels_of_the_photo_it_touches(shape, geometry):
    """By the definition, pixel by pixel along each axis; the photo was cut out at row 5 and column 7."""
    placement = place(shape, (30, 40), geometry).moved(5, 7)
    for box in ((0, 0, 39, 29), (3, 4, 11, 20), (19, 14, 20, 15), (0, 0, 1, 29), (38, 2, 39, 3)):
        spans = []
        for axis, first, last in ((1, box[0], box[2] + 1), (0, box[1], box[3] + 1)):
            pixels = np.arange(placement.corner[axis], placement.corner[axis] + placement.photo[axis])
            points = np.stack([pixels, pixels], axis=1)[None].astype(float)
            begin, end = (place_points(points + side, [placement])[0, :, 1 - axis] for side in (0, 1))
            touched = pixels[(begin < last - 1e-6) & (end > first + 1e-6)]
            spans.append((touched.min(), touched.max()) if len(touched) else None)
        expected = None if None in spans else (spans[0][0], spans[1][0], spans[0][1], spans[1][1])
        assert box_on_photo(box, placement) == expected
