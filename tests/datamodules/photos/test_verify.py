"""Images that are missing, broken or of another size are found before a run, once for the same files."""

import errno
import os
from contextlib import nullcontext
from pathlib import Path

import pytest
from PIL import Image

from protometry.datamodules.photos.cache import cache_folder
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.photos.verify import ImageFile, verify_images
from tests.photo_trees import claimed_png, truncated
from tests.photo_trees import noise_picture as picture


def verify(files, mode="decode", workers=0):
    problems = Problems("toy data", "Get it again.")
    verify_images(files, mode, workers, problems)
    problems.raise_any()


def test_names_every_bad_file(tmp_path):
    (tmp_path / "empty.jpg").touch()
    files = [
        ImageFile("1", picture(tmp_path / "good.jpg")),
        ImageFile("2", truncated(tmp_path / "half.jpg")),
        ImageFile("3", tmp_path / "empty.jpg"),
    ]
    with pytest.raises(ValueError, match=r"(?s)2 problems:\s+image 2: .*half\.jpg.*image 3: .*the file is empty"):
        verify(files)


def test_a_header_must_be_there(tmp_path):
    (tmp_path / "text.jpg").write_text("hello")
    with pytest.raises(ValueError, match=r"image 7: .*text\.jpg is not an image"):
        verify([ImageFile("7", tmp_path / "text.jpg")], "header")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mode", ["decode", "header"])
def test_the_limit_is_not_pillows_own(tmp_path, mode):
    """Which would warn of the photos of some cameras; it stays as it is for other code."""
    path = claimed_png(tmp_path / "wide.png", 100_000, 900)
    usual = Image.MAX_IMAGE_PIXELS
    with nullcontext() if mode == "header" else pytest.raises(ValueError, match="truncated"):  # a few bytes
        verify([ImageFile("3", path)], mode)
    assert usual == Image.MAX_IMAGE_PIXELS


@pytest.mark.parametrize("mode", ["decode", "header"])
def test_too_many_pixels(tmp_path, mode):
    path = claimed_png(tmp_path / "long.png", 170_000_000)
    with pytest.raises(ValueError, match=r".*170000000x1 pixels .*\(160,000,000\); shrink it\. .* '3' in `exclude`"):
        verify([ImageFile("3", path)], mode)


@pytest.mark.parametrize("mode", ["decode", "header", "none"])
def test_missing_is_always_seen(tmp_path, mode):
    files = [ImageFile("1", picture(tmp_path / "a.png"), tmp_path / "mask.png"), ImageFile("9", tmp_path / "b.png")]
    with pytest.raises(FileNotFoundError, match=r"(?s)2 problems:.*image 1: .*mask\.png.*image 9: .*b\.png"):
        verify(files, mode)


@pytest.mark.parametrize("mode", ["decode", "header"])
def test_a_photo_of_one_pixel(tmp_path, mode):
    with pytest.raises(ValueError, match=r"image 4: .*a\.png has 1x1 pixels .*exclude"):
        verify([ImageFile("4", picture(tmp_path / "a.png", (1, 1)))], mode)


@pytest.mark.parametrize("mode", ["decode", "header"])
def test_mask_of_another_size(tmp_path, mode):
    file = ImageFile("4", picture(tmp_path / "a.jpg"), picture(tmp_path / "m.png", (10, 20), mode="L"))
    with pytest.raises(ValueError, match=r"image 4: .*a\.jpg has 20x10 .*m\.png has 10x20"):
        verify([file], mode)


def test_good_files_are_remembered_until_they_change(tmp_path, private_cache):
    path = picture(tmp_path / "a.jpg")
    verify([ImageFile("1", path)])
    assert len(list(private_cache.rglob("*"))) == 2  # the folder and one stamp
    stamp = path.stat()
    path.write_bytes(b"x" * stamp.st_size)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    with pytest.raises(ValueError, match="image 1"):
        verify([ImageFile("1", path)])


def test_bad_files_are_not_remembered_and_a_header_check_does_not_count(tmp_path, private_cache):
    files = [ImageFile("1", truncated(tmp_path / "half.jpg"))]
    for _ in range(2):
        with pytest.raises(ValueError, match="truncated"):
            verify(files)
    assert not list(private_cache.iterdir())
    verify(files, "header")
    with pytest.raises(ValueError, match="truncated"):
        verify(files, "decode")


def test_workers_find_the_same(tmp_path):
    files = [ImageFile(str(i), picture(tmp_path / f"{i}.jpg", seed=i)) for i in range(3)]
    files.append(ImageFile("9", truncated(tmp_path / "half.jpg")))
    with pytest.raises(ValueError, match="1 problem:\n  image 9"):
        verify(files, workers=1)


def test_unknown_mode():
    with pytest.raises(ValueError, match="`verify` to be one of"):
        verify([], "some")


def test_full_cache_disk_only_warns_and_leaves_no_half_file(tmp_path, monkeypatch):
    def full(path, content):
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.warns(UserWarning, match="No space left on device.*set PROTOMETRY_CACHE"):
        verify([ImageFile("1", picture(tmp_path / "a.jpg"))])
    assert not [path for path in cache_folder().rglob("*") if path.is_file()]
