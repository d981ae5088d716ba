"""Boxes, points, outlines and parts are drawn where they are."""

import numpy as np
import pytest
import torch

from datamodules.check.contact_sheet import (
    BOX_COLOR,
    CAPTION,
    GAP,
    MASK_COLOR,
    TILE,
    Tile,
    contact_sheet,
    draw_sample,
    index_color,
)


def sample(**fields):
    return {"image": torch.full((3, 48, 96), 0.5), **fields}


def pixels(picture):
    return np.asarray(picture)


def test_image_fills_the_longer_side():
    drawn = pixels(draw_sample(sample()))
    assert drawn.shape == (TILE, TILE, 3)
    assert (drawn[: TILE // 2] == 128).all()
    assert (drawn[TILE // 2 :] == 225).all()


def test_box():
    drawn = pixels(draw_sample(sample(bounding_box=torch.tensor([10.0, 5.0, 19.0, 14.0]))))  # twice as large
    yellow = (drawn == BOX_COLOR).all(axis=2)
    rows, columns = np.flatnonzero(yellow.any(axis=1)), np.flatnonzero(yellow.any(axis=0))
    assert (columns[0], rows[0], columns[-1], rows[-1]) == (20, 10, 39, 29)
    assert not yellow[11:29, 21:39].any()


def test_points():
    points = torch.tensor([[10.0, 5.0], [0.0, 0.0], [30.0, 20.0]])
    drawn = pixels(draw_sample(sample(part_points=points, part_visible=torch.tensor([True, False, True]))))
    assert tuple(drawn[10, 20]) == index_color(0)
    assert tuple(drawn[40, 60]) == index_color(2)
    assert tuple(drawn[1, 1]) == (128, 128, 128)


def test_outline_of_the_mask():
    mask = torch.zeros(48, 96, dtype=torch.bool)
    mask[10:20, 30:40] = True
    drawn = pixels(draw_sample(sample(object_mask=mask)))
    pink = (drawn == MASK_COLOR).all(axis=2)
    assert pink[20, 60:80].all()
    assert pink[20:40, 79].all()
    assert pink.sum() == 4 * 20 - 4


def test_parts_have_colors():
    codes = torch.zeros(48, 96, dtype=torch.uint8)
    codes[:, :10], codes[:, 20:30] = 1, 2
    drawn = pixels(draw_sample(sample(label_map=codes)))
    first, second, none = drawn[5, 5], drawn[5, 50], drawn[5, 100]
    assert tuple(none) == (128, 128, 128)
    assert not (first == second).all()
    assert np.abs(first - (0.55 * 128 + 0.45 * np.array(index_color(1)))).max() <= 0.5


def test_sheet():
    tiles = [Tile(sample(), f"test: {i}", "a class") for i in range(5)]
    sheet = contact_sheet(tiles, columns=3)
    assert sheet.size == (3 * (TILE + GAP) + GAP, 2 * (TILE + CAPTION + GAP) + GAP)
    drawn = pixels(sheet)
    assert (drawn[GAP + 5, GAP + 5] == 128).all()
    assert (drawn[TILE + CAPTION + 2 * GAP + 5, GAP + TILE + GAP + 5] == 128).all()
    assert (drawn[TILE + CAPTION + 2 * GAP + 5, 2 * (TILE + GAP) + GAP + 5] == 255).all()  # no sixth sample
    caption = drawn[GAP + TILE : GAP + TILE + CAPTION, GAP : GAP + TILE]
    assert (caption < 100).any()


def test_long_and_foreign_names_fit():
    name = "鸟/" + "very long name " * 20
    drawn = pixels(contact_sheet([Tile(sample(), name, name)]))
    assert (drawn[:, GAP + TILE :] == 255).all()


def test_no_samples():
    with pytest.raises(ValueError, match="`tiles` to hold samples, but got none"):
        contact_sheet([])
