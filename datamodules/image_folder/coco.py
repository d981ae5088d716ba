"""Annotations in COCO's format (Lin et al. 2014) as a table with a row per image."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from protometry.datamodules.image_folder.cells import Cells
from protometry.datamodules.photos.files import SAVE_AGAIN, read_text
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.sample import nfc
from protometry.datamodules.transforms.placement import inclusive_boxes

VISIBLE = 2  # 1 is annotated but hidden, 0 not annotated


@dataclass
class _Image:
    id: int | str
    file_name: str
    split: str = ""  # ours: COCO has a file per split
    group: str = ""


@dataclass
class _Category:
    id: int | str
    name: str
    keypoints: list[str] = field(default_factory=list)


@dataclass
class _Annotation:
    image_id: int | str
    category_id: int | str
    bbox: list[float] = field(default_factory=list)
    keypoints: list[float] = field(default_factory=list)
    segmentation: Any = None
    iscrowd: bool = False


@dataclass
class _Coco:
    images: list[_Image]
    annotations: list[_Annotation]
    categories: list[_Category]


def read_coco(path: Path, problems: Problems) -> Cells:
    """Read images with their categories, and the box, keypoints and polygons of the object with the largest box.

    An image in which there are no or several categories has several labels, and so have all others then. Annotations of
    crowds are left out.

    Raises:
        ValueError: if it is not COCO's format.
    """
    try:
        coco = TypeAdapter(_Coco).validate_json(nfc(read_text(path, SAVE_AGAIN)))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(
            f"Expected {path} to be in COCO's format, with `images`, `annotations` and `categories`, but got "
            f"{first['msg']}{f' at {where}' if where else ''}."
        ) from error
    categories = {category.id: category for category in coco.categories}
    objects: dict[int | str, list[_Annotation]] = defaultdict(list)
    known = {image.id for image in coco.images}
    for category in coco.categories:
        if ";" in category.name:
            problems.wrong(f"{path.name}: expected names of categories without `;`, but got {category.name!r}")
    for number, annotation in enumerate(coco.annotations):
        if fault := _fault(annotation, known, categories):
            problems.wrong(f"{path.name}, annotations.{number}: {fault}")
        elif not annotation.iscrowd:
            objects[annotation.image_id].append(annotation)
    problems.raise_any()
    shown = [sorted(objects[image.id], key=_area, reverse=True) for image in coco.images]  # keeps the order of ties
    names = [list(dict.fromkeys(categories[one.category_id].name for one in found)) for found in shown]
    columns = {
        "image": [image.file_name for image in coco.images],
        "label": [found[0] if found else "" for found in names],
    }
    if any(len(found) != 1 for found in names):
        columns["labels"] = [";".join(found) for found in names]
    if any(one.bbox for found in shown for one in found):
        columns["box"] = [_box(found[:1]) for found in shown]
    parts = dict.fromkeys(part for category in coco.categories for part in category.keypoints)
    points = [_points(categories, found[:1]) for found in shown]
    columns |= {f"part:{part}": [seen.get(part, "") for seen in points] for part in parts}
    for name in ("split", "group"):
        if any(values := [getattr(image, name) for image in coco.images]):
            columns[name] = values
    outlines = [_polygons(found[0].segmentation) if found else [] for found in shown]
    places = [f"image {image.id}" for image in coco.images]
    return Cells(path, columns, places, problems, outlines if any(outlines) else [])


def _fault(one: _Annotation, images: set[int | str], categories: dict[int | str, _Category]) -> str:
    if one.image_id not in images:
        return f"there is no image with the id {one.image_id!r}"
    if one.category_id not in categories:
        return f"there is no category with the id {one.category_id!r}"
    if len(one.bbox) not in (0, 4):
        return f"expected a `bbox` of 4 numbers x, y, width and height, but got {one.bbox}"
    if one.keypoints and len(one.keypoints) != 3 * len(categories[one.category_id].keypoints):
        return (
            f"expected 3 numbers for each of the {len(categories[one.category_id].keypoints)} `keypoints` of category "
            f"{categories[one.category_id].name!r}, but got {len(one.keypoints)}"
        )
    if isinstance(one.segmentation, list) and not one.iscrowd and not all(map(_is_polygon, one.segmentation)):
        return "expected every polygon of `segmentation` to be 3 or more pairs of numbers x, y"
    return ""


def _is_polygon(corners: Any) -> bool:
    numbers = isinstance(corners, list) and all(isinstance(value, int | float) for value in corners)
    return numbers and len(corners) >= 6 and len(corners) % 2 == 0


def _area(one: _Annotation) -> float:
    return one.bbox[2] * one.bbox[3] if one.bbox else 0.0


def _box(largest: list[_Annotation]) -> str:
    if not largest or not largest[0].bbox:
        return ""
    x, y, width, height = largest[0].bbox
    return " ".join(map(repr, inclusive_boxes(np.array([x, y, x + width, y + height])).tolist()))


def _points(categories: dict[int | str, _Category], largest: list[_Annotation]) -> dict[str, str]:
    """The visible points of an object by the names of the parts."""
    if not largest or not largest[0].keypoints:
        return {}
    names = categories[largest[0].category_id].keypoints
    rows = np.array(largest[0].keypoints).reshape(-1, 3).tolist()
    return {name: f"{x!r} {y!r}" for name, (x, y, seen) in zip(names, rows, strict=True) if seen == VISIBLE}


def _polygons(segmentation: Any) -> list[NDArray[np.float64]]:
    """The polygons of an object; none if its mask is stored in another way."""
    if not isinstance(segmentation, list):
        return []
    return [np.array(corners, dtype=np.float64).reshape(-1, 2) for corners in segmentation]
