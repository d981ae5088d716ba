"""Photos on pages: every view of one is a part of the same file, with boxes in its pixels."""

import base64
import io
import re
from types import SimpleNamespace

import pytest
from PIL import Image

from protometry.evaluation.pages.site import Site
from protometry.explanations.unit_view import BoxView

SVG = '<svg role="img" aria-label="&lt;b&gt;" viewBox="([^"]*)">%s(.*)</svg>'
FIRST, AGAIN = SVG % '<image id="photo-0" href="([^"]*)" ([^/]*)/>', SVG % '<use href="#photo-0"/>'


def noise(width, height):
    return Image.effect_noise((width, height), 64).convert("RGB")


def parts(element):
    """View box, file, size of the photo, and what is drawn on it."""
    return re.fullmatch(FIRST, element).groups()


def again(element):
    """View box, and what is drawn on the photo that the page holds already."""
    return re.fullmatch(AGAIN, element).groups()


def opened(file):
    return Image.open(io.BytesIO(base64.b64decode(file.partition(",")[2])))


def test_box_and_crop_are_views_of_one_file():
    site, view = Site(None), BoxView(noise(40, 40), (8, 4, 11, 7))
    frame, file, size, drawn = parts(site.photo(view, "<b>"))
    assert (frame, size) == ("0 0 40 40", 'width="40" height="40"')
    assert drawn == '<rect class="box" x="8" y="4" width="4" height="4"/>'
    # 40 % of 40 pixels about columns 8..11 and rows 4..7, moved down by two: columns 2..17 and rows 0..15
    assert again(site.crop(view, "<b>")) == ("2 0 16 16", "")
    assert again(site.whole(view.picture, "<b>")) == ("0 0 40 40", "")
    assert opened(file).convert("RGB").tobytes() == view.picture.tobytes()  # small pictures are lossless
    of_parts = BoxView(view.picture, (4, 8, 23, 15), parts=((4, 8, 7, 11), (20, 12, 23, 15)))
    assert re.findall(r'x="(\d+)" y="(\d+)"', again(site.photo(of_parts, "<b>"))[1]) == [("4", "8"), ("20", "12")]
    flat = BoxView(view.picture, None)
    assert again(site.crop(flat, "<b>")) == again(site.photo(flat, "<b>")) == ("0 0 40 40", "")
    assert 'id="photo-1"' in site.whole(noise(40, 40), "<b>")


def test_large_photos_are_reduced_in_their_file_only():
    frame, file, size, _ = parts(Site(None).crop(BoxView(noise(800, 400), (0, 0, 399, 399)), "<b>"))
    assert (frame, size, opened(file).size) == ("0 0 400 400", 'width="800" height="400"', (360, 180))


def test_numbers_are_scaled_to_the_photo():
    boxes = {2: (64, 64, 127, 127)}  # of the picture at 256 pixels, whose number is above the box
    image = SimpleNamespace(whole=noise(64, 64), numbered=lambda rows, size: (Image.new("RGB", (size, size)), boxes))
    frame, _, _, drawn = parts(Site(None).numbered(image, [], "<b>"))
    scale, edge, box, label, x, y, number = re.fullmatch(
        r'<g transform="scale\((.*)\)">(<rect class="edge".*/>)(<rect class="box".*/>)(<rect class="label".*/>)'
        r'<text x="(.*)" y="(.*)">(.*)</text></g>',
        drawn,
    ).groups()
    assert (frame, scale, number) == ("0 0 64 64", "0.25", "2")
    assert edge.split(" ", 2)[2] == box.split(" ", 2)[2] == 'x="64" y="64" width="64" height="64"/>'
    assert 'y="48"' in label
    assert 63 < float(x) < 80
    assert float(y) == 56


def test_a_box_outside_of_its_photo_is_refused():
    with pytest.raises(ValueError, match=r"inside an image of 40 x 40, but got \(8, 4, 40, 7\)"):
        BoxView(noise(40, 40), (8, 4, 40, 7))
