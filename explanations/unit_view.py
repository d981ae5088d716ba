"""What one unit saw of one image, drawn the same way in sheets, reports, loggers and studies.

Three pictures: the photo with the box around what the unit saw most of, the explainer's map over it, and a crop that is
large enough to recognise what it shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from protometry.explanations.explainer import Explainer, Targets
from protometry.explanations.heat import heat_map
from protometry.explanations.views import (
    CAPTION_LINES,
    CAPTION_SIZE,
    GAP,
    WHITE,
    Box,
    check_box,
    crop,
    draw_box,
    fit,
    scaled_box,
    to_image,
)
from protometry.lightning_modules.contract import InterpretableModel, ModelOutput, UnitTable
from protometry.metrics.primitives.boxes import bounding_boxes
from protometry.metrics.primitives.intersection_over_union import mask_intersection_over_union, places
from protometry.metrics.primitives.regions import clip_saliency
from protometry.run_folder.text_in_pictures import write_text

LEAST_CROP = 0.4  # of the shorter side of the image
AT_ONCE = 16  # images explained at once
_PARTS = 3  # named of a box


@dataclass(frozen=True)
class BoxView:
    """A photo with the box around what a unit saw, and that part of it.

    Args:
        picture: the whole image.
        box: around the positive values above the 95th percentile of the map, in inclusive pixels of the image, as
            metrics on maps take it; None for a flat map. Of a unit with several parts, around the cells of its parts.
        size: longer side of the drawn pictures in pixels.
        least_crop: side of the crop, as a share of the shorter side of the image; 0 for what the box holds alone.
        parts: boxes of these cells, which the photo shows instead; none for units of one part.

    Raises:
        ValueError: if a box leaves the image.
    """

    picture: Image.Image
    box: Box | None
    size: int = 144
    least_crop: float = LEAST_CROP
    parts: tuple[Box, ...] = ()

    def __post_init__(self) -> None:
        for box in self.boxes:
            check_box(self.picture, box)

    @property
    def boxes(self) -> tuple[Box, ...]:
        """What is drawn on the photo."""
        return self.parts or tuple(filter(None, [self.box]))

    @property
    def region(self) -> Box:
        """What the crop shows: the box and its surroundings, or the whole image without a box."""
        width, height = self.picture.size
        whole = (0, 0, width - 1, height - 1)
        return recognisable(self.box, (width, height), self.least_crop) if self.box else whole

    @cached_property
    def photo(self) -> Image.Image:
        """The image with the boxes."""
        whole = fit(self.picture, self.size)
        return draw_box(whole, *(scaled_box(box, self.picture, whole) for box in self.boxes))

    @cached_property
    def crop(self) -> Image.Image:
        """The region."""
        return fit(crop(self.picture, self.region), self.size)


@dataclass(frozen=True, kw_only=True)
class UnitView(BoxView):
    """What a unit saw of an image.

    Args:
        heat: the explainer's map over the image, which is not enlarged.
    """

    heat: Image.Image

    @property
    def legend(self) -> str:
        """The colours of the map in words."""
        return "the map is flat" if self.box is None else "orange: above 0, blue: below"


def unit_view(
    image: Tensor,
    saliency: Tensor,
    size: int = 144,
    box: Box | None = None,
    least_crop: float = LEAST_CROP,
    parts: tuple[Box, ...] = (),
) -> UnitView:
    """Draw a map of an explainer.

    Args:
        image: ``(3, H, W)`` float in 0..1.
        saliency: ``(H, W)`` float, signed, as explainers return it.
        size: longer side of the three pictures in pixels.
        box: to draw instead of the map's own, such as the field of view of a cell.
        least_crop: side of the crop, as a share of the shorter side of the image; 0 for what the box holds alone.
        parts: boxes of the parts of a unit, as :func:`part_boxes` has them, to draw instead of the map's own.

    Raises:
        ValueError: if an argument has another shape, or the map is not as large as the image.
    """
    if image.shape[1:] != saliency.shape:
        raise ValueError(
            f"Expected argument `saliency` to be as large as the image, {tuple(image.shape[1:])}, but got "
            f"{tuple(saliency.shape)}."
        )
    image, saliency = image.detach().cpu(), saliency.detach().cpu().nan_to_num()
    picture = to_image(image)
    heat = fit(to_image(heat_map(image, saliency)), min(size, max(picture.size)))
    box = box or _around(parts) or evidence_box(saliency)
    return UnitView(picture, box, size, least_crop, parts, heat=heat)


def part_boxes(model: InterpretableModel, output: ModelOutput | None, row: int, unit: int) -> tuple[Box, ...]:
    """The boxes of the cells that the parts of a unit were found in, in one image; none for units of one part."""
    if output is None or output.cells is None:
        return ()
    geometry, width = model.geometry, model.geometry.grid[1]
    return tuple(geometry.cell_box(cell // width, cell % width) for cell in output.cells[row, unit].tolist())


def _around(boxes: Sequence[Box]) -> Box | None:
    """The smallest box that holds all; None without any."""
    if not boxes:
        return None
    x0, y0, x1, y1 = zip(*boxes, strict=True)
    return min(x0), min(y0), max(x1), max(y1)


def unit_views(  # noqa: PLR0913
    explainer: Explainer,
    model: InterpretableModel,
    images: Tensor,
    ids: Tensor,
    size: int = 144,
    sample_ids: Tensor | None = None,
    least_crop: float = LEAST_CROP,
) -> list[list[UnitView]]:
    """Explain units ``ids`` ``(B, k)`` in images and draw what they saw: B lists of k views.

    Only random explainers need ``sample_ids``, the data set's ``sample_key``.
    """
    seen = _seen(explainer, model, images, ids, sample_ids)
    return [
        [unit_view(image, saliency, size, None, least_crop, parts) for saliency, parts in row]
        for image, row in zip(images.cpu(), seen, strict=True)
    ]


def box_views(  # noqa: PLR0913
    explainer: Explainer,
    model: InterpretableModel,
    images: Tensor,
    ids: Tensor,
    size: int = 144,
    sample_ids: Tensor | None = None,
    least_crop: float = LEAST_CROP,
) -> list[list[BoxView]]:
    """The same without pictures of the maps."""
    seen = _seen(explainer, model, images, ids, sample_ids)
    return [
        [
            BoxView(to_image(image), _around(parts) or evidence_box(saliency.nan_to_num()), size, least_crop, parts)
            for saliency, parts in row
        ]
        for image, row in zip(images.cpu(), seen, strict=True)
    ]


def _seen(
    explainer: Explainer, model: InterpretableModel, images: Tensor, ids: Tensor, sample_ids: Tensor | None
) -> list[list[tuple[Tensor, tuple[Box, ...]]]]:
    """``(H, W)`` maps of units on the CPU, k for each of B images, and the boxes of the parts of these units."""
    units, seen = model.units(), []
    device = units.active.device
    for first in range(0, len(images), AT_ONCE):
        some = slice(first, first + AT_ONCE)
        pictures, keys = images[some].to(device), None if sample_ids is None else sample_ids[some].to(device)
        output = explainer.observe(model, pictures) if units.parts > 1 else None
        targets = Targets("unit", ids[some].to(device))
        maps = explainer.attribute(model, pictures, targets, output=output, sample_ids=keys).cpu()
        for row, chosen in enumerate(ids[some].tolist()):
            parts = [part_boxes(model, output, row, unit) for unit in chosen]
            seen.append(list(zip(maps[row], parts, strict=True)))
    return seen


def evidence_box(saliency: Tensor) -> Box | None:
    """The box around the positive values above the 95th percentile of a map, None if there are none."""
    x0, y0, x1, y1 = bounding_boxes(clip_saliency(saliency) > 0).tolist()
    return None if x1 < 0 else (x0, y0, x1, y1)


def recognisable(box: Box, size: tuple[int, int], least_crop: float = LEAST_CROP) -> Box:
    """A box grown about its centre to a share of the shorter side of an image of (width, height), and moved inside.

    Example:
        >>> recognisable((0, 20, 3, 23), (100, 50)), recognisable((10, 10, 59, 19), (100, 50))
        ((0, 12, 19, 31), (10, 5, 59, 24))
    """
    least = round(least_crop * min(size))
    spans = []
    for first, last, pixels in ((box[0], box[2], size[0]), (box[1], box[3], size[1])):
        side = max(last - first + 1, least)
        start = min(max((first + last + 1 - side) // 2, 0), pixels - side)
        spans.append((start, start + side - 1))
    return spans[0][0], spans[1][0], spans[0][1], spans[1][1]


def same_places(maps: Tensor) -> list[int]:
    """For each map of an image, the first one before it that looks at the same place, by its largest values, or -1.

    A flat map has -1, see :func:`protometry.metrics.primitives.intersection_over_union.places`.
    """
    regions = clip_saliency(maps.nan_to_num()) > 0
    first_at_place: list[int] = places(mask_intersection_over_union(regions[:, None], regions[None])[None])[0].tolist()
    return first_at_place


def part_in(box: Box | None, sample: Mapping[str, Any], part_names: Sequence[str]) -> str | None:
    """The names of the visible parts in a box, the one nearest to its centre first; None if there is none.

    Above three, the others are counted.

    Example:
        >>> points = {"part_points": torch.tensor([[2.0, 2.0], [4.0, 5.0]]), "part_visible": torch.tensor([True, True])}
        >>> part_in((0, 0, 6, 8), points, ["beak", "eye"]), part_in((7, 7, 8, 8), points, ["beak", "eye"])
        ('eye and beak', None)
    """
    if box is None or "part_points" not in sample:
        return None
    points, (x0, y0, x1, y1) = sample["part_points"].floor(), box
    inside = (points >= torch.tensor([x0, y0])).all(dim=1) & (points <= torch.tensor([x1, y1])).all(dim=1)
    inside &= sample["part_visible"]
    if not inside.any() or len(part_names) != len(points):
        return None
    away = (points - torch.tensor([x0 + x1, y0 + y1]) / 2).square().sum(dim=1)
    names = [part_names[index] for index in away.argsort(stable=True).tolist() if inside[index]]
    if len(names) > _PARTS:
        names = [*names[: _PARTS - 1], f"{len(names) - _PARTS + 1} more parts"]
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def unit_tile(view: UnitView, *caption: str) -> Image.Image:
    """The three pictures of a view side by side, above a caption of up to two lines, cut where they are too wide."""
    size = view.size
    tile = Image.new("RGB", (3 * size + 2 * GAP, size + CAPTION_LINES * (CAPTION_SIZE + GAP)), WHITE)
    for index, panel in enumerate((view.photo, fit(view.heat, size), view.crop)):
        left = index * (size + GAP)
        tile.paste(panel, (left + (size - panel.width) // 2, (size - panel.height) // 2))
    for index, line in enumerate(caption[:CAPTION_LINES]):
        write_text(tile, (0, size + index * (CAPTION_SIZE + GAP)), line, CAPTION_SIZE, tile.width)
    return tile


def unit_name(units: UnitTable, unit: int, class_names: Sequence[str], concept_names: Sequence[str]) -> str:
    """The concept or class that a unit stands for, else its kind and number."""
    if units.kind == "class":
        return class_names[unit]
    return concept_name(units, unit, concept_names) or f"{units.kind} {unit}"


def concept_name(units: UnitTable, unit: int, concept_names: Sequence[str]) -> str | None:
    """The concept that a unit stands for; None without one, or if the names of the concepts are unknown."""
    if units.names is not None:
        return units.names[unit]
    concept = -1 if units.concepts is None else int(units.concepts[unit])
    return concept_names[concept] if 0 <= concept < len(concept_names) else None
