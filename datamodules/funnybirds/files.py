"""The files of FunnyBirds that its tables imply, and the checks of part maps and other renderings.

Folders are scanned once each; no file is looked up one by one.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protometry.datamodules.bird_parts import FIRST_OBJECT_CODE, LABEL_MAP_CODES, PART_NAMES
from protometry.datamodules.funnybirds.part_maps import UNMATCHED, bird_pixels, label_codes, solid_unknown_color
from protometry.datamodules.funnybirds.tables import Scenes, table_name
from protometry.datamodules.photos.files import decode_image
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.photos.verify import ImageFile, Verify, picture_size

INTERVENTIONS = "test_interventions"


@dataclass(frozen=True, kw_only=True)
class Rendering(ImageFile):
    """Another rendering of the scene of an image, whose size it must have."""

    image: Path

    def fault(self, verify: Verify) -> str:
        """What is wrong with the rendering, or an empty string."""
        return self._wrong_size(picture_size(self.path, verify))

    def _wrong_size(self, size: tuple[int, int]) -> str:
        try:
            expected = picture_size(self.image, "header")
        except ValueError:
            return ""  # the checks of the image itself say so
        if size == expected:
            return ""
        return (
            f"{self.path} has {size[0]}x{size[1]} pixels (width x height), but its image {self.image} has "
            f"{expected[0]}x{expected[1]}"
        )


@dataclass(frozen=True, kw_only=True)
class PartMap(Rendering):
    """The part map of an image.

    Args:
        kept: whether each part was drawn, in the order beak, eye, foot, tail, wing.
        evaluated: whether the image is evaluated, so that the map must show some of the bird.
    """

    evaluated: bool
    kept: tuple[bool, ...]
    objects: int

    def fault(self, verify: Verify) -> str:
        """What is wrong with the map, or an empty string: its size and, decoding, its colours."""
        if verify != "decode":
            return super().fault(verify)
        part_map = decode_image(self.path)
        return self._wrong_size((part_map.shape[1], part_map.shape[0])) or self._wrong_colors(part_map)

    def _wrong_colors(self, part_map: NDArray[np.uint8]) -> str:
        if unknown := solid_unknown_color(part_map):
            return f"{self.path} has an area of the color {unknown}, which stands for no part"
        codes = label_codes(part_map)
        if not (codes[codes != UNMATCHED] > 0).any():
            return f"{self.path} shows nothing, neither bird nor objects that could hide it"
        for part, kept in zip(PART_NAMES, self.kept, strict=True):
            if not kept and np.isin(codes, LABEL_MAP_CODES[part]).any():
                return f"{self.path} shows the {part}, which the table calls removed"
        objects = int(codes[codes != UNMATCHED].max()) - FIRST_OBJECT_CODE + 1
        if objects > self.objects:
            return f"{self.path} shows background object {objects - 1}, but the table has {self.objects} of them"
        if self.evaluated and not bird_pixels(codes).any():
            return f"{self.path} shows no bird, as objects hide all of it; list {self.sample_id} in `exclude`"
        return ""


def maps_folder(split: str) -> str:
    """Name of the folder of one split's part maps."""
    return f"{split}_part_map"


def no_maps(folder: Path, split: str) -> str | None:
    """Why the images of a split ("train" or "test") have no part maps, or None if they have."""
    return None if (folder / maps_folder(split)).is_dir() else f"no {maps_folder(split)}/ under root"


def no_interventions(folder: Path, split: str) -> str | None:
    """Why the images of a split ("train" or "test") have no interventions, or None if they have."""
    if split != "test":
        return "interventions are rendered for test images only"
    return None if (folder / INTERVENTIONS).is_dir() else f"no {INTERVENTIONS}/ under root"


def kept_file(kept: Collection[str]) -> str:
    """Name of the file in which only some parts are left.

    Example:
        >>> kept_file({"wing", "beak"}), kept_file(())
        ('body_beak_wing.png', 'body_.png')
    """
    return f"body_{'_'.join(sorted(kept))}.png"


def background_file(index: int) -> str:
    """Path, below the folder of an image's interventions, of the file without one background object."""
    return f"background_interventions/{index}.png"


def intervention_folder(scenes: Scenes, row: int) -> str:
    """Path, below the official folder, of the folder of an image's interventions."""
    return f"{INTERVENTIONS}/{Path(scenes.file(row)).with_suffix('')}"


def intervention_files(scenes: Scenes, row: int) -> Iterator[str]:
    """Names of all files in an image's folder of interventions: all subsets of its parts, all single objects."""
    present = [part for part, kept in zip(PART_NAMES, scenes.kept[row].tolist(), strict=True) if kept]
    for size in range(len(present) + 1):
        yield from (kept_file(parts) for parts in combinations(present, size))
    yield from (background_file(index) for index in range(scenes.objects[row]))


def check_files(folder: Path, scenes: Scenes, excluded: Collection[str], problems: Problems) -> list[ImageFile]:
    """Compare the files of one split with its table; those that are needed and there are to be verified."""
    by_folder: dict[Path, list[tuple[ImageFile, bool]]] = defaultdict(list)
    for row in range(len(scenes.labels)):
        name = scenes.sample_id(row)
        for file in _implied(folder, scenes, row, ImageFile(name, folder / name)):
            by_folder[file.path.parent].append((file, name not in excluded))
    existing: list[ImageFile] = []
    for place, files in by_folder.items():
        there = _pictures(place)
        existing += [file for file, needed in files if needed and file.path.name in there]
        absent = [file.path.name for file, needed in files if needed and file.path.name not in there]
        extra = sorted(there - {file.path.name for file, _ in files})
        expected = (
            f"{place.relative_to(folder)} should hold {len(files)} images according to {table_name(scenes.split)}"
        )
        if absent:
            problems.missing(f"{expected}, but misses {len(absent)} of them; the first is {absent[0]}")
        if extra:
            problems.wrong(f"{expected}, but holds {len(extra)} others; the first is {extra[0]}")
    for kind in (scenes.split, maps_folder(scenes.split)):
        for place in sorted(path for path in (folder / kind).glob("*") if path.is_dir() and path not in by_folder):
            problems.wrong(f"{place.relative_to(folder)}: {table_name(scenes.split)} names no image of such a class")
    return existing


def _implied(folder: Path, scenes: Scenes, row: int, image: ImageFile) -> Iterator[ImageFile]:
    """Every file that belongs to one image; files of optional folders only if the folder is there."""
    yield image
    if no_maps(folder, scenes.split) is None:
        path = folder / maps_folder(scenes.split) / scenes.file(row)
        kept, objects = tuple(scenes.kept[row].tolist()), int(scenes.objects[row])
        evaluated = scenes.split == "test"
        yield PartMap(image.sample_id, path, image=image.path, evaluated=evaluated, kept=kept, objects=objects)
    if no_interventions(folder, scenes.split) is None:
        for file in intervention_files(scenes, row):
            path = folder / intervention_folder(scenes, row) / file
            yield Rendering(image.sample_id, path, image=image.path)


def _pictures(folder: Path) -> set[str]:
    """Names of the PNG files in a folder, none if there is no such folder."""
    if not folder.is_dir():
        return set()
    with os.scandir(folder) as entries:
        return {entry.name for entry in entries if entry.name.endswith(".png") and not entry.name.startswith(".")}
