"""Photos to predict: what cannot be read is reported, whatever is wrong with it, and the advice works."""

import os

import numpy as np
import pytest
from PIL import Image

from protometry.datamodules.photos.photo_files import PhotoFiles
from tests.datamodules.toy_photos import make_toy, toy
from tests.photo_trees import claimed_png, cut, photo


def seen(folder, data, **options):
    """Names of the photos that are read, and why others are not."""
    batches = list(PhotoFiles([str(folder)], data, **options).predict_dataloader())
    read = [name for batch in batches for name in batch.get("sample_id", ())]
    return sorted(os.path.basename(name) for name in read), [text for batch in batches for text in batch["unread"]]


@pytest.fixture
def data(tmp_path):
    return toy(make_toy(tmp_path / "toy"))


def wide(path):
    return Image.fromarray(np.full((30, 40), 4095, np.uint16)).save(path)


def deep(path):
    return Image.fromarray(np.full((30, 40), 300.0, np.float32)).save(path, "TIFF")


def save_with_8_bits(path):
    with Image.open(path) as image:
        pixels = np.asarray(image)
    Image.fromarray((pixels / pixels.max() * 255).astype(np.uint8)).save(path)


@pytest.mark.parametrize(("write", "words", "follow"), [
    (lambda path: claimed_png(path, 170_000_000), "170000000x1 pixels .*; shrink it", lambda path: photo(path, 1)),
    (lambda path: path.touch(), "the file is empty. Replace the file", lambda path: photo(path, 1)),
    (lambda path: cut(photo(path, 1)), "cannot be decoded: .* leave it out", lambda path: path.unlink()),
    (wide, "nearly black; save it with 8 bits per channel", save_with_8_bits),
    (deep, "32 bits per pixel, .*; save it with 8 bits per channel", save_with_8_bits),
])  # fmt: skip
def test_a_bad_photo_is_reported_and_its_remedy_works(tmp_path, data, write, words, follow):
    photo(tmp_path / "photos/good.png", 1)
    write(tmp_path / "photos/bad.png")
    read, (reason,) = seen(tmp_path / "photos", data)
    assert read == ["good.png"]
    with pytest.raises(ValueError, match=rf"Expected {tmp_path}/photos/bad\.png to be an image, .*{words}"):
        raise ValueError(reason)
    assert "exclude" not in reason  # of data sets
    follow(tmp_path / "photos/bad.png")
    assert seen(tmp_path / "photos", data) == (sorted(os.listdir(tmp_path / "photos")), [])


def test_the_limit_of_pixels(tmp_path, data):
    photo(tmp_path / "photos/a.png", 1)  # 40x30
    assert seen(tmp_path / "photos", data, max_pixels=1200) == (["a.png"], [])
    read, (reason,) = seen(tmp_path / "photos", data, max_pixels=1199)
    assert not read
    assert "40x30 pixels (width x height), more than `max_pixels` (1,199)" in reason


def test_a_photo_that_does_not_fit_into_memory_when_it_is_resized(tmp_path, data, monkeypatch):
    def full(*args):
        raise MemoryError("Unable to allocate 4 GiB")

    monkeypatch.setattr("protometry.datamodules.photos.one_photo.PhotoTransform.to_frame", full)
    photo(tmp_path / "photos/a.png", 1)
    (reason,) = seen(tmp_path / "photos", data)[1]
    assert "a.png to be resized, but its 40x30 pixels (width x height) do not fit into memory" in reason


def test_names_that_are_not_utf8_are_named(tmp_path, data):
    photo(tmp_path / "photos/good.png", 1)
    with open(os.fsencode(tmp_path) + b"/photos/\xff.png", "wb") as file:
        file.write((tmp_path / "photos/good.png").read_bytes())
    read, (reason,) = seen(tmp_path / "photos", data)
    assert read == ["good.png"]
    assert "\\udcff.png' to be UTF-8, but it is not. Rename it." in reason


def test_a_link_to_a_folder_above_is_left_out(tmp_path, data):
    photo(tmp_path / "photos/in/good.png", 1)
    (tmp_path / "photos/in/up").symlink_to(tmp_path)
    with pytest.warns(UserWarning, match="in/up links to a folder above it and is left out"):
        assert seen(tmp_path / "photos", data) == (["good.png"], [])


def test_photos_from_python_have_their_number_as_a_name(tmp_path, data):
    path, pixels = photo(tmp_path / "a.png", 1), np.zeros((30, 40, 3), np.uint8)
    (batch,) = PhotoFiles([pixels, path, Image.fromarray(pixels)], data).predict_dataloader()
    assert batch["sample_id"] == ["photo 1", str(path), "photo 3"]
    assert batch["image"][[0, 2]].max() == 0 < batch["image"][1].max()
    with pytest.raises(TypeError, match="Expected argument `photos` to be a list, but got one str"):
        PhotoFiles("photo.jpg", data)
