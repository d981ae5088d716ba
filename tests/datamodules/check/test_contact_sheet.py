"""Samples stand in rows, each with a caption that fits."""

import numpy as np
import torch

from protometry.datamodules.check.contact_sheet import CAPTION, COLUMNS, GAP, TILE, Tile, contact_sheet


def sheet(count, sample_id="0", text="a class"):
    return contact_sheet([Tile({"image": torch.full((3, 48, 96), 0.5)}, "test", sample_id, text)] * count)


def test_rows_of_samples_with_captions():
    picture = sheet(COLUMNS + 2)
    assert picture.size == (COLUMNS * (TILE + GAP) + GAP, 2 * (TILE + CAPTION + GAP) + GAP)
    drawn = np.asarray(picture)
    second = TILE + CAPTION + 2 * GAP + 5
    assert (drawn[GAP + 5, GAP + 5] == 128).all()
    assert (drawn[second, 2 * (TILE + GAP) - 5] == 128).all()
    assert (drawn[second, 2 * (TILE + GAP) + GAP + 5] == 255).all()  # no ninth sample
    assert (drawn[GAP + TILE : GAP + TILE + CAPTION, GAP : GAP + TILE] < 100).any()


def test_long_and_foreign_names_fit():
    name = "鸟/" + "very long name " * 20
    assert (np.asarray(sheet(1, name, name))[:, GAP + TILE :] == 255).all()


def test_names_of_several_lines_are_written_in_one():
    drawn = [np.asarray(sheet(1, name, name)) for name in ("an\nant", "an ant")]
    assert (drawn[0] == drawn[1]).all()
