"""Pictures of explanations: crops, boxes, tiles and contact sheets, shared by loggers, reports and studies.

Pure functions from images and boxes to new images; equal inputs and library versions give equal bytes. Boxes are
inclusive pixels (x0, y0, x1, y1).
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

from PIL import Image, ImageDraw
from torch import Tensor

from protometry.run_folder.text_in_pictures import width_of, write_text

Box = tuple[int, int, int, int]
WHITE, BLACK, BOX_COLOUR = "#ffffff", "#000000", "#ff8c00"
FOR, AGAINST = "#d95f02", "#2155bd"  # orange and blue, of a contribution, weight or map, with and without colour vision
GAP, CAPTION_SIZE, CAPTION_LINES, TITLE_SIZE, TAG_SIZE = 4, 12, 2, 16, 14


def to_image(tensor: Tensor) -> Image.Image:
    """A tensor ``(3, H, W)`` in 0..1 as an 8-bit RGB picture; rounding errors beyond are clipped.

    Raises:
        ValueError: if the tensor has another shape or is not floating point.

    Example:
        >>> import torch
        >>> to_image(torch.tensor([1.0, 0.5, 0.0]).view(3, 1, 1)).getpixel((0, 0))
        (255, 128, 0)
    """
    if tensor.ndim != 3 or tensor.shape[0] != 3 or not tensor.is_floating_point():
        raise ValueError(
            f"Expected argument `tensor` to be (3, H, W) float, but got {tuple(tensor.shape)} {tensor.dtype}."
        )
    pixels = (tensor.detach().cpu().float().clamp(0, 1) * 255).round().byte()
    return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())


def crop(image: Image.Image, box: Box) -> Image.Image:
    """The pixels of a box.

    Raises:
        ValueError: if the box is empty or leaves the image.

    Example:
        >>> crop(Image.new("RGB", (8, 8)), (2, 3, 4, 3)).size
        (3, 1)
    """
    x0, y0, x1, y1 = check_box(image, box)
    return image.crop((x0, y0, x1 + 1, y1 + 1))


def draw_box(image: Image.Image, *boxes: Box) -> Image.Image:
    """A copy of an image with the outlines of boxes, two pixels wide, which cover their outermost pixels.

    Raises:
        ValueError: if a box is empty or leaves the image.
    """
    copy = image.copy()
    for box in boxes:
        ImageDraw.Draw(copy).rectangle(check_box(image, box), outline=BOX_COLOUR, width=2)
    return copy


def draw_numbered(image: Image.Image, boxes: Mapping[int, Box]) -> Image.Image:
    """A copy of an image with the outlines of boxes, dark outside to stand out from any ground, and their numbers.

    Raises:
        ValueError: if a box is empty or leaves the image.
    """
    copy = image.copy()
    draw = ImageDraw.Draw(copy)
    for x0, y0, x1, y1 in (check_box(image, box) for box in boxes.values()):
        draw.rectangle((x0 - 1, y0 - 1, x1 + 1, y1 + 1), outline=BLACK)
        draw.rectangle((x0, y0, x1, y1), outline=BOX_COLOUR, width=2)
    for number, tag in number_tags(image.size, boxes).items():
        draw.rectangle(tag, fill=BOX_COLOUR, outline=BLACK)
        middle = ((tag[0] + tag[2] + 1) / 2, (tag[1] + tag[3] + 1) / 2)
        write_text(copy, middle, str(number), TAG_SIZE, anchor="mm")
    return copy


def number_tags(size: tuple[int, int], boxes: Mapping[int, Box]) -> dict[int, Box]:
    """Where the numbers of boxes go in a picture of (width, height).

    Each number is on a tag at the first corner where it hides neither an earlier tag nor the border.
    """
    tags: dict[int, Box] = {}
    for number, box in boxes.items():
        tags[number] = _free_tag(size, box, round(width_of(str(number), TAG_SIZE)) + 6, [*tags.values()])
    return tags


def _free_tag(size: tuple[int, int], box: Box, width: int, tags: Sequence[Box]) -> Box:
    """The place of the number of a box: outside or inside one of its corners."""
    height, (x0, y0, x1, y1) = TAG_SIZE + 2, box
    lefts, tops = (x0 - 1, x1 + 2 - width), (y0 - height, y0 - 1, y1 + 2 - height, y1 + 1)
    places = [(left, top, left + width - 1, top + height - 1) for top in tops for left in lefts]
    inside = [
        place for place in places if place[0] >= 0 and place[1] >= 0 and place[2] < size[0] and place[3] < size[1]
    ]
    free = [place for place in inside if not any(_touch(place, tag) for tag in tags)]
    return next(iter((*free, *inside, (0, 0, width - 1, height - 1))))


def _touch(one: Box, other: Box) -> bool:
    """Whether two tags overlap, or could be read as one number."""
    return one[0] - GAP < other[2] and other[0] - GAP < one[2] and one[1] < other[3] and other[1] < one[3]


def sheet(tiles: Sequence[Sequence[Image.Image]], columns: int, titles: Sequence[str]) -> Image.Image:
    """A contact sheet on white: groups of tiles, each under its title, wrapped after ``columns`` tiles.

    Raises:
        ValueError: if there are no tiles, no columns, or not one title per group.
    """
    every = [tile for group in tiles for tile in group]
    if not every or columns < 1 or len(titles) != len(tiles):
        raise ValueError(
            "Expected arguments `tiles`, `columns`, `titles` to hold tiles, at least one column and one title per "
            f"group, but got {len(every)} tiles in {len(tiles)} groups, {columns} columns and {len(titles)} titles."
        )
    step_x, step_y = max(tile.width for tile in every) + 2 * GAP, max(tile.height for tile in every) + GAP
    header = TITLE_SIZE + 2 * GAP
    lines = sum(-(-len(group) // columns) for group in tiles)
    picture = Image.new("RGB", (columns * step_x, len(tiles) * header + lines * step_y), WHITE)
    top = 0
    for title, group in zip(titles, tiles, strict=True):
        write_text(picture, (GAP, top + GAP), title, TITLE_SIZE, picture.width - 2 * GAP)
        top += header
        for index, tile in enumerate(group):
            row, column = divmod(index, columns)
            picture.paste(tile, (GAP + column * step_x, top + row * step_y))
        top += -(-len(group) // columns) * step_y
    return picture


def png(image: Image.Image) -> bytes:
    """The bytes of a PNG file."""
    data = io.BytesIO()
    image.save(data, "PNG")
    return data.getvalue()


def check_box(image: Image.Image, box: Box) -> Box:
    """Refuse a box that is empty or leaves the image, with a ``ValueError``."""
    x0, y0, x1, y1 = box
    if not (0 <= x0 <= x1 < image.width and 0 <= y0 <= y1 < image.height):
        raise ValueError(
            f"Expected argument `box` to be inclusive pixels (x0, y0, x1, y1) inside an image of {image.width} x "
            f"{image.height}, but got {tuple(box)}."
        )
    return x0, y0, x1, y1


def scaled_box(box: Box, image: Image.Image, scaled: Image.Image) -> Box:
    """A box of an image in a scaled copy of it, at least one pixel.

    Example:
        >>> scaled_box((2, 3, 4, 3), Image.new("RGB", (8, 8)), Image.new("RGB", (16, 16)))
        (4, 6, 9, 7)
    """
    corners = []
    for first, last, pixels, there in ((0, 2, image.width, scaled.width), (1, 3, image.height, scaled.height)):
        start = min(round(box[first] * there / pixels), there - 1)
        corners.append((start, max(min(round((box[last] + 1) * there / pixels), there) - 1, start)))
    return corners[0][0], corners[1][0], corners[0][1], corners[1][1]


def fit(image: Image.Image, size: int) -> Image.Image:
    """An image scaled so that its longer side has ``size`` pixels."""
    scale = size / max(image.size)
    method = Image.Resampling.BICUBIC if scale > 1 else Image.Resampling.LANCZOS
    return image.resize((max(round(image.width * scale), 1), max(round(image.height * scale), 1)), method)
