"""One photo of the user."""

import numpy as np
import pytest
import torch
from PIL import Image

from protometry.datamodules.photos.one_photo import read_photo
from tests.datamodules.toy_photos import Toy, make_toy
from tests.datamodules.toy_photos import toy as toy_data
from tests.photo_trees import turned


@pytest.fixture
def toy(tmp_path):
    return Toy(root=str(make_toy(tmp_path / "toy")))


@pytest.mark.parametrize("pixels", [(10, 20, 3), (20, 10, 3)])
def test_the_same_in_training_and_evaluation(tmp_path, pixels):
    """One file is one image, however its EXIF tag turns it."""
    pixels = np.random.default_rng(0).integers(0, 256, pixels, dtype=np.uint8)
    root = make_toy(tmp_path / "toy")
    turned(root / "ant_1.png", pixels)  # training
    data = toy_data(root, augmentation="none")
    alone = read_photo(root / "ant_1.png", data)["image"]
    for split in ("train", "projection"):
        dataset = data.dataset(split)
        assert torch.equal(dataset[dataset.sample_ids.index("ant_1.png")]["image"], alone)


def test_a_part_of_a_photo_is_what_a_file_of_that_part_would_be(tmp_path, toy):
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "whole.png")
    Image.fromarray(pixels[5:25, 10:40]).save(tmp_path / "part.png")
    part = read_photo(tmp_path / "whole.png", toy, (10, 5, 30, 20))
    assert torch.equal(part["image"], read_photo(tmp_path / "part.png", toy)["image"])
    for bad in ((-1, 5, 30, 20), (10, 5, 31, 20), (10, 5, 30, 26), (10, 5, 0, 20)):
        with pytest.raises(ValueError, match=r"`crop` to be x, y, .* 40x30 pixels .*, but got "):
            read_photo(tmp_path / "whole.png", toy, bad)
    assert [sample["uncropped"] for sample in (part, read_photo(tmp_path / "whole.png", toy))] == [False, False]
    toy.crop = "box"
    flags = [read_photo(tmp_path / "whole.png", toy, crop)["uncropped"] for crop in (None, (10, 5, 30, 20))]
    assert flags == [True, False]
