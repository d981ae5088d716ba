import numpy as np
import pytest
import torch
from PIL import Image, ImageColor

from protometry.explanations.views import BOX_COLOUR, crop, draw_box, draw_numbered, fit, scaled_box, sheet, to_image

RED, GREEN = (255, 0, 0), (0, 255, 0)


def picture(width=64, height=64, spot=(16, 8, 23, 15)):
    """Green with a red spot in inclusive pixels."""
    image = Image.new("RGB", (width, height), GREEN)
    image.paste(RED, (spot[0], spot[1], spot[2] + 1, spot[3] + 1))
    return image


def colours(image):
    return {colour for _, colour in image.getcolors(image.width * image.height)}


def test_every_box_has_its_number_on_a_tag_of_its_own():
    image, box = Image.new("RGB", (100, 100), GREEN), (30, 30, 69, 69)
    boxes = {1: box, 2: box, 3: box, 4: (0, 0, 99, 99)}
    drawn = draw_numbered(image, boxes)
    # the same box thrice: a tag above its upper left corner, one above its upper right one, then one inside
    tags = [(29, 14), (56, 14), (29, 29)]
    orange = np.asarray(drawn) == ImageColor.getrgb(BOX_COLOUR)
    filled = [orange[y + 2 : y + 14, x + 2 : x + 13].all(axis=2).mean() for x, y in tags]
    assert min(filled) > 0.5
    assert colours(image) == {GREEN}
    with pytest.raises(ValueError, match="inside an image of 100 x 100"):
        draw_numbered(image, {1: (0, 0, 100, 9)})


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


def test_crop_is_inclusive():
    image = picture()
    assert colours(crop(image, (16, 8, 23, 15))) == {RED}
    assert crop(image, (16, 8, 23, 15)).size == (8, 8)


@pytest.mark.parametrize("box", [(0, 0, 64, 3), (-1, 0, 3, 3), (5, 0, 4, 3), (0, 0, -1, -1)])
def test_boxes_outside_or_empty_are_refused(box):
    for view in (crop, draw_box):
        with pytest.raises(ValueError, match=r"`box` to be inclusive pixels .* inside an image of 64 x 64"):
            view(picture(), box)


def test_draw_box_paints_the_outline_only_and_copies():
    image = Image.new("RGB", (10, 9))
    drawn = draw_box(image, (1, 1, 8, 7))
    painted = {(x, y) for x in range(10) for y in range(9) if drawn.getpixel((x, y)) == (255, 140, 0)}
    assert len(painted) == 8 * 7 - 4 * 3  # two pixels on each side
    assert {(1, 1), (8, 1), (1, 7), (8, 7)} <= painted
    assert colours(image) == {(0, 0, 0)}


@pytest.mark.parametrize("box", [(63, 63, 63, 63), (0, 0, 0, 0), (0, 0, 63, 63), (62, 0, 63, 0)])
def test_a_box_survives_a_shrunk_image(box):
    small = fit(picture(), 20)
    assert (255, 140, 0) in colours(draw_box(small, scaled_box(box, picture(), small)))


def test_fit_keeps_proportions():
    sizes = [fit(Image.new("RGB", size), 64).size for size in ((64, 32), (10, 20), (500, 2))]
    assert sizes == [(64, 32), (32, 64), (64, 1)]


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
