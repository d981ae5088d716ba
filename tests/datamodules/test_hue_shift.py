"""Shares of hues, and bars that are as high as they are."""

import numpy as np
import pytest
import torch

from datamodules import ImageDataset, Nico
from datamodules.hue_shift import BAR, BINS, HEIGHT, MARGIN, color_shares, draw_hue_shift
from tests.nico_tree import make_nico


class Plain(ImageDataset):
    """Images of 2 x 2 pixels, each a list of four colours 0..255."""

    def __init__(self, *images):
        self.images = images

    @property
    def sample_ids(self):
        return [str(i) for i in range(len(self.images))]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return {"image": torch.tensor(self.images[index]).reshape(2, 2, 3).permute(2, 0, 1) / 255}


def test_shares_by_hand():
    red, green, blue, white = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)
    hues, pale = color_shares(Plain([red, red, green, white], [blue, white, white, green]))
    assert pale == 3 / 8
    # hue 0, 120 and 240 degrees in steps of 10
    assert {index: share for index, share in enumerate(hues) if share} == {0: 2 / 8, 12: 2 / 8, 24: 1 / 8}


def test_no_images():
    with pytest.raises(ValueError, match="`dataset` to hold images, but got none"):
        color_shares(Plain())


def test_test_photos_are_pale(tmp_path):
    data = Nico(str(make_nico(tmp_path / "root")), image_size=16)
    (train_hues, train_pale), (test_hues, test_pale) = (color_shares(data.dataset(s)) for s in ("projection", "test"))
    assert (train_pale, test_pale) == (0, 1)
    assert test_hues.sum() == 0
    assert train_hues.sum() == pytest.approx(1)
    drawn = np.asarray(draw_hue_shift(data))
    grey = (drawn == 190).all(axis=2)
    base = 2 * (HEIGHT + 2 * MARGIN) - MARGIN
    assert grey[base - HEIGHT, MARGIN + (BINS + 1) * BAR]  # the one bar of the test panel has full height
    assert not grey[: HEIGHT + MARGIN - 2].any()
