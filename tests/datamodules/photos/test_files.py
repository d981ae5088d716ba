"""The official folder is found, and images are decoded completely or refused."""

import os
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from protometry.datamodules.photos import files, folders
from protometry.datamodules.photos.files import FORMATS, decode_image, locate, read_text
from protometry.datamodules.photos.folders import images_below
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.photos.verify import picture_size
from tests.photo_trees import noise_picture as picture
from tests.photo_trees import truncated, turned


@pytest.mark.parametrize(("place", "said"), [
    ("root", r"TOY/table.txt, but .* holds a, b, c, d, e and 2 more\. Buy it"), ("root/a", r"holds nothing\. Buy it"),
    ("none", r"to be a folder, but there is none at .*none\. Buy it"),
])  # fmt: skip
def test_another_folder_is_refused(tmp_path, place, said):
    for name in "abcdefg":
        (tmp_path / "root" / name).mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match=said):
        locate(tmp_path / place, "TOY", "table.txt", "Buy it.")


class TestDecode:
    def test_colour_and_grey(self, tmp_path):
        image = decode_image(picture(tmp_path / "a.png"))
        assert image.shape == (10, 20, 3)
        grey = decode_image(picture(tmp_path / "g.png", mode="L"))
        assert (grey[..., 0] == grey[..., 2]).all()
        np.testing.assert_array_equal(decode_image(tmp_path / "g.png", "L"), grey[..., 0])

    @pytest.mark.parametrize("name", ["a.jpg", "a.png", "a.tif", "16 bits.png", "16 bits.tif"])
    def test_upright(self, tmp_path, name):
        pixels = np.arange(200).reshape(10, 20)
        turned(tmp_path / name, (pixels * 256).astype(np.uint16) if "16" in name else pixels.astype(np.uint8))
        stored, upright = (decode_image(tmp_path / name, upright=upright) for upright in (False, True))
        assert stored.shape == ((20, 10, 3) if name.endswith("tif") else (10, 20, 3))  # Pillow turns TIFF itself
        assert upright.shape == (20, 10, 3)
        if name != "a.jpg":
            assert (upright[..., 0] == np.rot90(pixels, -1)).all()

    def test_broken_exif_turns_nothing(self, tmp_path):
        Image.new("RGB", (20, 10)).save(tmp_path / "a.jpg", exif=b"Exif\0\0 no tags")
        assert decode_image(tmp_path / "a.jpg", upright=True).shape == (10, 20, 3)

    def test_sixteen_bits_are_cut_to_eight(self, tmp_path):
        values = np.array([[0, 255, 256, 40000, 65535]], np.uint16)
        for name in ("a.png", "a.tif"):
            Image.fromarray(values).save(tmp_path / name)
            image = decode_image(tmp_path / name)
            assert (image.dtype, image[0].tolist()) == (np.uint8, [[v] * 3 for v in (0, 0, 1, 156, 255)])
            assert decode_image(tmp_path / name, "L")[0].tolist() == [0, 0, 1, 156, 255]
        cv2.imwrite(str(tmp_path / "rgb.png"), np.dstack([values, values, values // 256]))  # blue, green, red
        assert decode_image(tmp_path / "rgb.png")[0, 3].tolist() == [0, 156, 156]

    @pytest.mark.parametrize("shape", [(4, 5), (4, 5, 3)])
    @pytest.mark.parametrize("name", ["a.png", "a.tif"])
    def test_twelve_bits_in_sixteen_are_refused(self, tmp_path, name, shape):
        """Scans and masks alike; following the advice makes them readable."""
        pixels = np.full(shape, 4095, np.uint16)
        cv2.imwrite(str(tmp_path / name), pixels)
        for mode in ("RGB", "L"):
            with pytest.raises(ValueError, match=rf"{name} .* a quarter of the range of 16 bits.*save it with 8 bits"):
                decode_image(tmp_path / name, mode)
        Image.fromarray((pixels // 16).astype(np.uint8)).save(tmp_path / name)
        assert (decode_image(tmp_path / name) == 255).all()

    @pytest.mark.parametrize("dtype", [np.int32, np.float32])
    def test_thirty_two_bits_are_refused(self, tmp_path, dtype):
        Image.fromarray(np.full((4, 5), 300, dtype)).save(tmp_path / "a.tif")
        with pytest.raises(ValueError, match=r"a\.tif to be an image, but .* 32 bits per pixel.*save it with 8 bits"):
            decode_image(tmp_path / "a.tif")
        Image.fromarray(np.full((4, 5), 200, np.uint8)).save(tmp_path / "a.tif")
        assert (decode_image(tmp_path / "a.tif") == 200).all()

    def test_other_modes_become_rgb(self, tmp_path):
        colours = np.array([[[204, 51, 0]] * 8] * 8, np.uint8)
        for mode, name in (("RGBA", "a.png"), ("P", "p.png"), ("CMYK", "c.tif"), ("CMYK", "c.jpg")):
            Image.fromarray(colours).convert(mode).save(tmp_path / name)
            image = decode_image(tmp_path / name)
            assert image.shape == (8, 8, 3)
            assert abs(image.astype(int) - colours).max() <= (0 if mode != "CMYK" else 6), name

    @pytest.mark.parametrize("name", ["a.png", "a.tif", "a.webp", "a.gif"])
    def test_what_is_transparent_shows_white(self, tmp_path, name):
        """Red stays, whatever is hidden on the right becomes white; a mask has its stored values."""
        pixels = np.full((8, 8, 4), (204, 51, 0, 255), np.uint8)
        pixels[:, 4:] = (10, 20, 200, 0)
        image = Image.fromarray(pixels)
        for other in (image, image.convert("LA")) if name in ("a.png", "a.tif") else (image,):
            other.save(tmp_path / name, **({"lossless": True, "exact": True} if name == "a.webp" else {}))
            opaque = other.convert("RGB").getpixel((0, 0))
            decoded = decode_image(tmp_path / name)
            assert (decoded[:, :4] == opaque).all()
            assert (decoded[:, 4:] == 255).all()
        if name == "a.png":
            image.quantize(4).save(tmp_path / name)  # a palette with transparency
            assert (decode_image(tmp_path / name)[:, 4:] == 255).all()
            image.convert("LA").save(tmp_path / name)
            assert decode_image(tmp_path / name, "L")[0, -1] < 50
        image.putalpha(128)
        image.save(tmp_path / "half.png")
        assert abs(decode_image(tmp_path / "half.png")[0, 0].astype(int) - (229, 153, 127)).max() <= 1

    @pytest.mark.parametrize(("write", "said"), [
        (truncated, "truncated"), (Path.touch, r": the file is empty\.$"),
        (lambda path: path.write_text("hello"), "cannot identify image file"),
    ])  # fmt: skip
    def test_no_image(self, tmp_path, write, said):
        write(tmp_path / "a.jpg")
        with pytest.raises(ValueError, match=rf"a\.jpg to be an image, but .*{said}"):
            decode_image(tmp_path / "a.jpg")

    @pytest.mark.parametrize("read", [decode_image, partial(picture_size, verify="header"), read_text])
    def test_what_is_no_regular_file_is_not_opened(self, tmp_path, read):
        os.mkfifo(tmp_path / "pipe.jpg")
        for path in (tmp_path / "pipe.jpg", Path("/dev/null"), tmp_path):
            with pytest.raises(ValueError, match=rf"{path} .*it is a folder, a pipe or a device"):
                read(path)

    @pytest.mark.parametrize("read", [decode_image, partial(picture_size, verify="header")])
    def test_formats_that_pillow_hands_to_programs(self, tmp_path, read, monkeypatch):
        monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *a, **k: pytest.fail("Ghostscript was started"))
        (tmp_path / "a.jpg").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")
        with pytest.raises(ValueError, match=r"a\.jpg .*cannot identify image file"):
            read(tmp_path / "a.jpg")

    @pytest.mark.parametrize("kind", FORMATS)
    def test_formats_whatever_the_name(self, tmp_path, kind):
        Image.new("RGB", (4, 3), (204, 51, 0)).save(tmp_path / "a.jpg", kind)
        assert decode_image(tmp_path / "a.jpg").shape == (3, 4, 3)

    @pytest.mark.parametrize("name", ["a.gif", "a.tif", "a.TIFF"])
    def test_the_first_of_several_frames(self, tmp_path, name):
        """In class folders and in folders to predict."""
        first, second = (Image.new("RGB", (4, 3), colour) for colour in ("#cc3300", "#0000ff"))
        first.save(tmp_path / name, save_all=True, append_images=[second])
        assert images_below(tmp_path, Problems("photos", "")) == [name]
        assert (decode_image(tmp_path / name) == (204, 51, 0)).all()

    def test_heic_is_left_out_with_its_name_where_nothing_reads_it(self, tmp_path, monkeypatch):
        for module in (files, folders):
            monkeypatch.setattr(module, "HEIF", None)
        monkeypatch.setattr(folders, "EXTENSIONS", (".jpg",))
        (tmp_path / "a.HEIC").write_bytes(b"ftypheic")
        with pytest.warns(
            UserWarning, match=r"1 photo in HEIC is not read: a\.HEIC\. Expected pillow-heif to be installed: `"
        ):
            assert images_below(tmp_path, Problems("photos", "")) == []
        with pytest.raises(ValueError, match=r"photos in HEIC are not read. Expected pillow-heif to"):
            decode_image(tmp_path / "a.HEIC")

    def test_missing(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"none\.jpg"):
            decode_image(tmp_path / "none.jpg")
