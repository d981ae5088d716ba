import errno
import os
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from datamodules.photos.cache import cache_folder
from datamodules.photos.files import (
    ImageFile,
    Problems,
    decode_image,
    locate,
    verify_images,
)


def picture(path, size=(20, 10), seed=0, mode="RGB"):
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)).save(path)
    return path


def truncated(path):
    picture(path, (200, 200))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def verify(files, mode="decode", workers=0):
    problems = Problems("toy data", "Get it again.")
    verify_images(files, mode, workers, problems)
    problems.raise_any()


class TestProblems:
    def test_counts_all_and_shows_five(self):
        problems = Problems("toy data", "Get it again.")
        for number in range(7):
            problems.wrong(f"row {number}")
        with pytest.raises(
            ValueError, match=r"(?s)7 problems:.*row 0.*row 4\n  \.\.\. and 2 more\nGet it again"
        ) as caught:
            problems.raise_any()
        assert "row 5" not in str(caught.value)

    def test_missing_file_decides_the_type(self):
        problems = Problems("toy data", "Get it again.")
        problems.wrong("a")
        problems.missing("b is missing")
        with pytest.raises(FileNotFoundError, match="2 problems"):
            problems.raise_any()

    def test_nothing_wrong(self):
        Problems("toy data", "").raise_any()


class TestLocate:
    @pytest.fixture
    def data(self, tmp_path):
        folder = tmp_path / "data/toys/TOY"
        folder.mkdir(parents=True)
        (folder / "table.txt").touch()
        (folder / "images").mkdir()
        return tmp_path / "data"

    @pytest.mark.parametrize("root", ["toys", "toys/TOY"])
    def test_both_levels(self, data, root):
        assert locate(data / root, "TOY", "table.txt", "") == data / "toys/TOY"

    @pytest.mark.parametrize(("root", "advice"), [(".", "toys"), ("toys/TOY/images", "toys/TOY")])
    def test_one_level_off(self, data, root, advice):
        with pytest.raises(FileNotFoundError, match=rf"one level off: use `--data.root .*{advice}`"):
            locate(data / root, "TOY", "table.txt", "")

    def test_other_folder(self, tmp_path):
        for name in "abcdefg":
            (tmp_path / "root" / name).mkdir(parents=True)
        with pytest.raises(FileNotFoundError, match=r"TOY/table.txt, but .* holds a, b, c, d, e, \.\.\.\. Buy it"):
            locate(tmp_path / "root", "TOY", "table.txt", "Buy it.")

    def test_empty_and_missing_folder(self, tmp_path):
        (tmp_path / "empty").mkdir()
        with pytest.raises(FileNotFoundError, match=r"holds nothing\. Buy it"):
            locate(tmp_path / "empty", "TOY", "table.txt", "Buy it.")
        with pytest.raises(FileNotFoundError, match=r"to be a folder, but there is none at .*none\. Buy it"):
            locate(tmp_path / "none", "TOY", "table.txt", "Buy it.")


class TestDecode:
    def test_colour_and_grey(self, tmp_path):
        image = decode_image(picture(tmp_path / "a.png"))
        assert image.shape == (10, 20, 3)
        grey = decode_image(picture(tmp_path / "g.png", mode="L"))
        assert (grey[..., 0] == grey[..., 2]).all()
        np.testing.assert_array_equal(decode_image(tmp_path / "g.png", "L"), grey[..., 0])

    def test_sixteen_bits_are_cut_to_eight(self, tmp_path):
        values = np.array([[0, 255, 256, 40000, 65535]], np.uint16)
        for name in ("a.png", "a.tif"):
            Image.fromarray(values).save(tmp_path / name)
            image = decode_image(tmp_path / name)
            assert image.dtype == np.uint8
            assert image[0].tolist() == [[v] * 3 for v in (0, 0, 1, 156, 255)]
            assert decode_image(tmp_path / name, "L")[0].tolist() == [0, 0, 1, 156, 255]
        cv2.imwrite(str(tmp_path / "rgb.png"), np.dstack([values, values, values // 256]))  # blue, green, red
        assert decode_image(tmp_path / "rgb.png")[0, 3].tolist() == [0, 156, 156]

    @pytest.mark.parametrize("dtype", [np.int32, np.float32])
    def test_thirty_two_bits_are_refused(self, tmp_path, dtype):
        Image.fromarray(np.full((4, 5), 300, dtype)).save(tmp_path / "a.tif")
        with pytest.raises(ValueError, match=r"a\.tif to be an image, but .* 32 bits per pixel.*save it with 8 bits"):
            decode_image(tmp_path / "a.tif")

    def test_other_modes_become_rgb(self, tmp_path):
        colours = np.array([[[204, 51, 0]] * 8] * 8, np.uint8)
        for mode, name in (("RGBA", "a.png"), ("P", "p.png"), ("CMYK", "c.tif"), ("CMYK", "c.jpg")):
            Image.fromarray(colours).convert(mode).save(tmp_path / name)
            image = decode_image(tmp_path / name)
            assert image.shape == (8, 8, 3)
            assert abs(image.astype(int) - colours).max() <= (0 if mode != "CMYK" else 6), name
        clear = np.dstack([colours, np.zeros((8, 8), np.uint8)])
        Image.fromarray(clear).save(tmp_path / "clear.png")
        assert (decode_image(tmp_path / "clear.png") == colours).all()  # transparency is dropped

    def test_truncated(self, tmp_path):
        path = truncated(tmp_path / "half.jpg")
        with pytest.raises(ValueError, match=r"half\.jpg to be an image, but .*truncated.*`exclude`"):
            decode_image(path)

    def test_empty_and_no_image(self, tmp_path):
        (tmp_path / "empty.jpg").touch()
        (tmp_path / "text.jpg").write_text("hello")
        with pytest.raises(ValueError, match=r"empty\.jpg .*: the file is empty\. Replace"):
            decode_image(tmp_path / "empty.jpg")
        with pytest.raises(ValueError, match=r"text\.jpg .*cannot identify image file"):
            decode_image(tmp_path / "text.jpg")

    def test_missing(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"none\.jpg"):
            decode_image(tmp_path / "none.jpg")


class TestVerify:
    def test_names_every_bad_file(self, tmp_path):
        (tmp_path / "empty.jpg").touch()
        files = [
            ImageFile("1", picture(tmp_path / "good.jpg")),
            ImageFile("2", truncated(tmp_path / "half.jpg")),
            ImageFile("3", tmp_path / "empty.jpg"),
        ]
        with pytest.raises(ValueError, match=r"(?s)2 problems:\s+image 2: .*half\.jpg.*image 3: .*the file is empty"):
            verify(files)

    def test_header_does_not_see_truncation(self, tmp_path):
        verify([ImageFile("2", truncated(tmp_path / "half.jpg"))], "header")
        (tmp_path / "text.jpg").write_text("hello")
        with pytest.raises(ValueError, match=r"image 7: .*text\.jpg is not an image"):
            verify([ImageFile("7", tmp_path / "text.jpg")], "header")

    @pytest.mark.parametrize("mode", ["decode", "header"])
    def test_too_many_pixels(self, tmp_path, monkeypatch, mode):
        path = picture(tmp_path / "huge.png")
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 99)
        with pytest.raises(ValueError, match=r"image 3: .*huge\.png .*200 pixels"):
            verify([ImageFile("3", path)], mode)

    @pytest.mark.parametrize("mode", ["decode", "header", "none"])
    def test_missing_is_always_seen(self, tmp_path, mode):
        files = [ImageFile("1", picture(tmp_path / "a.png"), tmp_path / "mask.png"), ImageFile("9", tmp_path / "b.png")]
        with pytest.raises(FileNotFoundError, match=r"(?s)2 problems:.*image 1: .*mask\.png.*image 9: .*b\.png"):
            verify(files, mode)

    @pytest.mark.parametrize("mode", ["decode", "header"])
    def test_mask_of_another_size(self, tmp_path, mode):
        file = ImageFile("4", picture(tmp_path / "a.jpg"), picture(tmp_path / "m.png", (10, 20), mode="L"))
        with pytest.raises(ValueError, match=r"image 4: .*a\.jpg has 20x10 .*m\.png has 10x20"):
            verify([file], mode)

    def test_good_files_are_remembered_until_they_change(self, tmp_path, private_cache):
        path = picture(tmp_path / "a.jpg")
        verify([ImageFile("1", path)])
        assert len(list(private_cache.rglob("*"))) == 2  # the folder and one stamp
        stamp = path.stat()
        path.write_bytes(b"x" * stamp.st_size)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        verify([ImageFile("1", path)])  # same size and time: taken for the same file
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1))
        with pytest.raises(ValueError, match="image 1"):
            verify([ImageFile("1", path)])

    def test_decode_is_not_answered_by_a_header_check(self, tmp_path):
        files = [ImageFile("1", truncated(tmp_path / "half.jpg"))]
        verify(files, "header")
        with pytest.raises(ValueError, match="truncated"):
            verify(files, "decode")

    def test_bad_files_are_not_remembered(self, tmp_path, private_cache):
        files = [ImageFile("1", truncated(tmp_path / "half.jpg"))]
        for _ in range(2):
            with pytest.raises(ValueError, match="truncated"):
                verify(files)
        assert not list(private_cache.iterdir())

    def test_workers_find_the_same(self, tmp_path):
        files = [ImageFile(str(i), picture(tmp_path / f"{i}.jpg", seed=i)) for i in range(3)]
        files.append(ImageFile("9", truncated(tmp_path / "half.jpg")))
        with pytest.raises(ValueError, match="1 problem:\n  image 9"):
            verify(files, workers=1)

    def test_unknown_mode(self):
        with pytest.raises(ValueError, match="`verify` to be one of"):
            verify([], "some")


class TestCache:
    def test_full_cache_disk_only_warns_and_leaves_no_half_file(self, tmp_path, monkeypatch):
        def full(self, content):
            self.touch()
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.warns(UserWarning, match="No space left on device.*set PROTOMETRY_CACHE"):
            verify([ImageFile("1", picture(tmp_path / "a.jpg"))])
        assert not [path for path in cache_folder().rglob("*") if path.is_file()]
