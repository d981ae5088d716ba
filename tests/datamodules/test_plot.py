"""Boxes, points, outlines and parts are drawn where they are."""

import numpy as np
import pytest
import torch

from protometry.datamodules.plot import BOX_COLOR, MASK_COLOR, index_color, plot_sample


def sample(**fields):
    return {"image": torch.full((3, 48, 96), 0.5), **fields}


def drawn(size=192, **fields):
    return np.asarray(plot_sample(sample(**fields), size))


@pytest.mark.parametrize("size", [192, 96, 40])
def test_the_longer_side_has_the_size(size):
    picture = drawn(size)
    assert picture.shape == (size // 2, size, 3)
    assert (picture == 128).all()


def test_the_default_is_large_enough_for_a_person():
    assert plot_sample(sample()).size == (384, 192)


def test_a_large_image_is_averaged():
    image = torch.zeros(3, 48, 96)
    image[:, :, ::2] = 1
    assert (np.asarray(plot_sample({"image": image}, 48)) == 128).all()


def test_box():
    yellow = (drawn(bounding_box=torch.tensor([10.0, 5.0, 19.0, 14.0])) == BOX_COLOR).all(axis=2)  # twice as large
    rows, columns = np.flatnonzero(yellow.any(axis=1)), np.flatnonzero(yellow.any(axis=0))
    assert (columns[0], rows[0], columns[-1], rows[-1]) == (20, 10, 39, 29)
    assert not yellow[11:29, 21:39].any()


def test_a_box_smaller_than_a_pixel_of_the_picture():
    for x in range(20):
        box = torch.tensor([x, x, x, x + 1.0])
        assert (drawn(40, bounding_box=box) == BOX_COLOR).all(axis=2).any()


def test_visible_points():
    points = torch.tensor([[10.0, 5.0], [0.0, 0.0], [30.0, 20.0]])
    picture = drawn(part_points=points, part_visible=torch.tensor([True, False, True]))
    assert (tuple(picture[10, 20]), tuple(picture[40, 60])) == (index_color(0), index_color(2))
    assert tuple(picture[1, 1]) == (128, 128, 128)
    assert (drawn(part_points=points, part_visible=torch.zeros(3, dtype=torch.bool)) == 128).all()


def test_outline_of_the_mask():
    mask = torch.zeros(48, 96, dtype=torch.bool)
    mask[10:20, 30:40] = True
    pink = (drawn(object_mask=mask) == MASK_COLOR).all(axis=2)
    assert pink[20, 60:80].all()
    assert pink[20:40, 79].all()
    assert pink.sum() == 4 * 20 - 4


def test_parts_have_colors():
    codes = torch.zeros(48, 96, dtype=torch.uint8)
    codes[:, :10], codes[:, 20:30] = 1, 2
    picture = drawn(label_map=codes)
    first, second, none = picture[5, 5], picture[5, 50], picture[5, 100]
    assert tuple(none) == (128, 128, 128)
    assert not (first == second).all()
    assert np.abs(first - (0.55 * 128 + 0.45 * np.array(index_color(1)))).max() <= 0.5
    assert (drawn(label_map=torch.zeros(48, 96, dtype=torch.uint8)) == 128).all()


def test_neighbouring_indices_differ_clearly():
    colors = np.array([index_color(index) for index in range(40)])
    assert np.abs(np.diff(colors, axis=0)).max(axis=1).min() > 80
    assert len(np.unique(colors, axis=0)) == 40
