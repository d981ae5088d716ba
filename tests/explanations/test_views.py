import numpy as np
import pytest
import torch
from PIL import Image

from explanations.views import crop, draw_box, png, prototype_tile, sheet, to_image

RED, GREEN = (255, 0, 0), (0, 255, 0)


def picture(width=64, height=64, spot=(16, 8, 23, 15)):
    """Green with a red spot in inclusive pixels."""
    image = Image.new("RGB", (width, height), GREEN)
    image.paste(RED, (spot[0], spot[1], spot[2] + 1, spot[3] + 1))
    return image


def colours(image):
    return {colour for _, colour in image.getcolors(image.width * image.height)}


def test_to_image_keeps_rows_columns_and_channels():
    tensor = torch.zeros(3, 2, 3)
    tensor[0, 0, 2] = 1.0  # red, row 0, column 2
    tensor[2, 1, 0] = 0.5  # 127.5 rounds to even: 128
    image = to_image(tensor)
    assert image.size == (3, 2)
    assert image.mode == "RGB"
    assert image.getpixel((2, 0)) == RED
    assert image.getpixel((0, 1)) == (0, 0, 128)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_to_image_takes_any_float_and_clips(dtype):
    tensor = torch.tensor([-0.1, 1.2, 1.0], dtype=dtype).view(3, 1, 1).requires_grad_()
    assert to_image(tensor).getpixel((0, 0)) == (0, 255, 255)


def test_to_image_inverts_an_8_bit_picture():
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    tensor = torch.from_numpy(pixels).permute(2, 0, 1) / 255
    assert np.array_equal(np.asarray(to_image(tensor)), pixels)


@pytest.mark.parametrize("tensor", [torch.zeros(1, 4, 4), torch.zeros(4, 4), torch.zeros(3, 4, 4, dtype=torch.uint8)])
def test_to_image_refuses(tensor):
    with pytest.raises(ValueError, match=r"`tensor` to be \(3, H, W\) float"):
        to_image(tensor)


def test_crop_is_inclusive_and_margin_is_clipped():
    image = picture()
    assert colours(crop(image, (16, 8, 23, 15))) == {RED}
    assert crop(image, (16, 8, 23, 15)).size == (8, 8)
    assert crop(image, (16, 8, 23, 15), margin=2).size == (12, 12)
    assert crop(image, (0, 60, 3, 63), margin=5).size == (9, 9)


@pytest.mark.parametrize("box", [(0, 0, 64, 3), (-1, 0, 3, 3), (5, 0, 4, 3), (0, 0, -1, -1)])
def test_boxes_outside_or_empty_are_refused(box):
    for view in (crop, draw_box, prototype_tile):
        with pytest.raises(ValueError, match=r"`box` to be inclusive pixels .* inside an image of 64 x 64"):
            view(picture(), box)


def test_draw_box_paints_the_outline_only_and_copies():
    image = Image.new("RGB", (8, 6))
    drawn = draw_box(image, (1, 1, 6, 4), "#ff0000", width=1)
    painted = {(x, y) for x in range(8) for y in range(6) if drawn.getpixel((x, y)) == RED}
    # a 6 x 4 rectangle has a perimeter of 2 * 6 + 2 * 4 - 4 = 16 pixels
    assert len(painted) == 16
    assert {(1, 1), (6, 1), (1, 4), (6, 4)} <= painted
    assert colours(image) == {(0, 0, 0)}


def test_tile_shows_the_whole_image_and_the_enlarged_crop():
    tile = prototype_tile(picture(), (16, 8, 23, 15), size=128, caption="a\nb\nc")
    assert tile.getpixel((127, 127)) == GREEN
    left, right = 128 + 4, 2 * 128 + 4
    assert colours(tile.crop((left, 0, right, 128))) == {RED}
    # the box (16..23, 8..15) lies at 32..47, 16..31 in the image scaled by two; the line covers two pixels
    assert tile.getpixel((32, 16)) == tile.getpixel((47, 31)) == (255, 140, 0)
    assert tile.getpixel((34, 18)) == RED
    assert tile.getpixel((31, 15)) == GREEN


def test_tile_keeps_proportions_on_white():
    wide = Image.new("RGB", (64, 32), GREEN)
    tile = prototype_tile(wide, (0, 0, 7, 3), size=64)
    assert [tile.getpixel((20, y)) for y in (0, 15, 16, 47, 48)] == [(255,) * 3, (255,) * 3, GREEN, GREEN, (255,) * 3]
    assert tile.size == prototype_tile(picture(), (0, 0, 7, 7), size=64, caption="x" * 500).size


@pytest.mark.parametrize("box", [(63, 63, 63, 63), (0, 0, 0, 0), (0, 0, 63, 63), (62, 0, 63, 0)])
def test_tile_of_a_shrunk_image_keeps_tiny_boxes(box):
    tile = prototype_tile(picture(), box, size=20)
    assert (255, 140, 0) in colours(tile.crop((0, 0, 20, 20)))


def test_caption_and_title_are_black_on_white():
    tile = prototype_tile(picture(), (0, 0, 7, 7), size=64, caption="prototype 3")
    caption = tile.crop((0, 64, tile.width, tile.height))
    assert caption.getextrema()[0] == (0, 255)
    blank = prototype_tile(picture(), (0, 0, 7, 7), size=64)
    assert colours(blank.crop((0, 64, blank.width, blank.height))) == {(255, 255, 255)}


def test_sheet_groups_wrap_under_their_titles():
    tiles = [Image.new("RGB", (20, 10), colour) for colour in ("#ff0000", "#00ff00", "#0000ff")]
    contact = sheet([tiles, tiles[:1]], columns=2, titles=["first", "second " * 30])
    # columns of 20 + 8, three lines of 10 + 4, two titles of 16 + 8
    assert contact.size == (56, 3 * 14 + 2 * 24)
    # (4, 24) first tile, (32, 24) second, (4, 38) third after the wrap, (4, 76) the second group
    corners = [contact.getpixel(place) for place in ((4, 24), (32, 24), (4, 38), (4, 76))]
    assert corners == [RED, GREEN, (0, 0, 255), RED]
    assert contact.getpixel((32, 38)) == (255, 255, 255)
    assert contact.crop((0, 0, 56, 24)).getextrema()[0][0] < 64
    assert contact.crop((0, 52, 56, 76)).getextrema()[0][0] < 64


def test_sheet_takes_tiles_of_unequal_sizes_and_an_empty_group():
    contact = sheet([[Image.new("RGB", (20, 10))], [], [Image.new("RGB", (6, 30))]], 1, ["a", "", "c"])
    assert contact.size == (28, 2 * 34 + 3 * 24)


@pytest.mark.parametrize(
    ("tiles", "columns", "titles"), [([], 1, []), ([[]], 1, ["a"]), ([[1]], 0, ["a"]), ([[1]], 1, [])]
)
def test_sheet_refuses(tiles, columns, titles):
    groups = [[Image.new("RGB", (4, 4)) for _ in group] for group in tiles]
    with pytest.raises(ValueError, match="to hold tiles, at least one column and one title per group"):
        sheet(groups, columns, titles)


def test_equal_inputs_give_equal_bytes():
    def build():
        tile = prototype_tile(picture(), (16, 8, 23, 15), caption="prototype 1 · distance 0.5")
        return png(sheet([[tile, tile]], 2, ["class"]))

    assert build() == build()
