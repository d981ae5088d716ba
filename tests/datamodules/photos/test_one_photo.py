"""One photo of the user."""

from io import BytesIO

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


def test_a_photo_is_the_same_in_every_form(tmp_path, toy):
    """Also as floats, which are its 8 bits; what has the size of the model is as the model sees it."""
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path := tmp_path / "bird.png")
    expected = read_photo(str(path), toy)
    channels_first = torch.from_numpy(pixels).movedim(-1, 0)
    row = {"image": Image.open(path), "sample_id": "row 1", "part_points": torch.zeros(2, 2)}
    for photo in (
        path,
        path.read_bytes(),
        Image.open(path),
        pixels,
        pixels / 255,
        channels_first,
        channels_first / 255,
        row,
    ):
        read = read_photo(photo, toy)
        assert torch.equal(read["image"], expected["image"])
        assert (read["photo_size"], read["placement"]) == (expected["photo_size"], expected["placement"])
    assert read["sample_id"] == "row 1"
    assert "part_points" not in read  # which lie on the photo, not on the image
    seen = torch.rand(3, *toy.image_size)
    sample = {"image": seen, "sample_id": "mine", "part_points": torch.zeros(2, 2)}
    for photo in (seen, seen.movedim(0, -1).numpy(), sample):
        read = read_photo(photo, toy)
        assert torch.equal(read["image"], seen)
        assert "placement" not in read
    assert sample.keys() <= read.keys()


@pytest.mark.parametrize(
    ("photo", "error", "got"),
    [
        (3, TypeError, "int"),
        ({"picture": 3}, TypeError, "dict"),
        ([[0, 1]], TypeError, "list"),
        (np.zeros((3, 30, 40), np.uint8), ValueError, r"ndarray uint8 \(3, 30, 40\)"),
        (np.zeros((30, 40, 3), np.int64), ValueError, "int64"),
        (torch.zeros(2, 3, 30, 40), ValueError, r"Tensor torch.float32 \(2, 3, 30, 40\)"),
        (torch.full((3, 30, 40), 255.0), ValueError, "with values from 255 to 255"),
        (np.full((30, 40, 3), np.nan), ValueError, "with values from nan to nan"),
    ],
)
def test_what_is_no_photo_is_told_what_is(toy, photo, error, got):
    with pytest.raises(error, match=rf"Expected a photo to be a path, .* or a sample of the data, but got .*{got}"):
        read_photo(photo, toy)


def test_a_damaged_picture_of_pillow_is_refused_as_a_photo(toy):
    content = BytesIO()
    Image.effect_noise((90, 60), 60).save(content, "JPEG")
    picture = Image.open(BytesIO(content.getvalue()[:1000]))
    with pytest.raises(ValueError, match=r"Expected a photo that can be read, but .* truncated"):
        read_photo(picture, toy)
