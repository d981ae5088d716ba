"""SketchBirds in the layout of FunnyBirds (Hesse et al. 2023), with part maps and interventions."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from protometry.datamodules.bird_parts import COLORED, COLORS, PART_NAMES, SHAPE_NAMES
from protometry.datamodules.funnybirds.files import background_file, intervention_folder, kept_file, maps_folder
from protometry.datamodules.funnybirds.part_maps import LABEL_COLORS
from protometry.datamodules.funnybirds.tables import CLASSES, PARTS, PLACEHOLDER, Scenes, table_name
from protometry.datamodules.progress import track
from protometry.datamodules.sketch_birds import SketchBirds, SketchBirdsDataset
from protometry.datamodules.sketch_birds.scene import OBJECT_COLORS, SceneObject

OBJECT_COLOR_NAMES = dict(zip(OBJECT_COLORS, ("red", "green", "blue", "yellow"), strict=True))
Variant = dict[str, str]


def export_funnybirds(birds: SketchBirds, out: Path) -> None:
    """Write images, part maps, tables and, for test, every rendering without parts or without one background object.

    Train and test only: the layout has no validation images, its readers hold out training images. Models and colours
    of ``parts.json`` are named as in the original, whose index rule SketchBirds shares; ``bg_objects`` and the lists
    after it say what SketchBirds drew, not camera and light.

    Args:
        birds: what is written.
        out: an empty folder, ``root`` for :class:`protometry.datamodules.FunnyBirds`.

    Raises:
        ValueError: if there are occluders, for which the layout has no place.
    """
    datasets = {split: birds.dataset(split) for split in ("train", "test")}
    if occluders := datasets["test"].knobs.occluders:
        raise ValueError(f"Expected argument `occluders` to be 0 for the layout funnybirds, but got {occluders}.")
    variants = part_variants()
    classes = [{"class_idx": label, "parts": parts} for label, parts in enumerate(datasets["test"].classes)]
    _write_json(out / PARTS, variants)
    _write_json(out / CLASSES, classes)
    for split, dataset in datasets.items():
        entries = [_entry(dataset, index, variants) for index in range(len(dataset))]
        _write_json(out / table_name(split), entries)
        scenes = _scenes(dataset)
        for index in track(range(len(dataset)), f"writing {split} images"):
            _save(dataset.image(index), out / split / scenes.file(index))
            _save(label_colors(dataset.label_map(index)), out / maps_folder(split) / scenes.file(index))
            if split == "test":
                _save_interventions(dataset, index, out / intervention_folder(scenes, index))


def part_variants() -> dict[str, list[Variant]]:
    """The content of ``parts.json``: the 26 variants of SketchBirds under the names of FunnyBirds.

    Example:
        >>> part_variants()["tail"][4], part_variants()["eye"][0]
        ({'model': 'tail02.glb', 'color': 'green'}, {'model': 'eye01.glb'})
    """
    variants: dict[str, list[Variant]] = {}
    for part, shapes in SHAPE_NAMES.items():
        models = [f"{part}{number:02d}.glb" for number in range(1, len(shapes) + 1)]
        colors = list(COLORS) if part in COLORED else ["yellow"] if part == "beak" else []
        colored = [{"model": model, "color": color} for color in colors for model in models]
        variants[part] = colored or [{"model": model} for model in models]
    return variants


def label_colors(label_map: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The part map of a label map, the inverse of :func:`protometry.datamodules.funnybirds.part_maps.label_codes`.

    Args:
        label_map: ``(H, W)`` uint8 codes, without 255.

    Returns:
        ``(H, W, 3)`` uint8 RGB.

    Example:
        >>> label_colors(np.array([[0, 9, 33]], np.uint8)).tolist()
        [[[0, 0, 0], [0, 0, 255], [204, 204, 205]]]
    """
    colors = np.zeros((256, 3), dtype=np.uint8)
    colors[list(LABEL_COLORS)] = list(LABEL_COLORS.values())
    return colors[label_map]


def _scenes(dataset: SketchBirdsDataset) -> Scenes:
    scenes = [dataset.scene(index) for index in range(len(dataset))]
    return Scenes(
        dataset.split,
        np.array([scene.label for scene in scenes]),
        np.array([scene.kept for scene in scenes]),
        np.array([len(scene.objects) for scene in scenes]),
    )


def _entry(dataset: SketchBirdsDataset, index: int, variants: dict[str, list[Variant]]) -> dict[str, Any]:
    """What ``dataset_<split>.json`` says about one image."""
    scene = dataset.scene(index)
    entry: dict[str, Any] = {"class_idx": scene.label}
    for part, variant, kept in zip(PART_NAMES, scene.variants, scene.kept, strict=True):
        for key, value in variants[part][variant].items():
            entry[f"{part}_{key}"] = value if kept else PLACEHOLDER
    rows = [_object(thing) for thing in scene.objects]
    for column, key in enumerate(("objects", "x", "y", "half_size", "angle", "color")):
        entry[f"bg_{key}"] = "".join(f"{row[column]}," for row in rows)
    return entry


def _object(thing: SceneObject) -> tuple[int | float | str, ...]:
    """Shape, place and colour of a background object, in the coordinates of SketchBirds scenes."""
    return thing.shape, thing.x, thing.y, thing.half_size, thing.angle, OBJECT_COLOR_NAMES[thing.color]


def _save_interventions(dataset: SketchBirdsDataset, index: int, folder: Path) -> None:
    present = dataset.present(index)
    for size in range(len(present) + 1):
        for dropped in combinations(sorted(present), size):
            _save(dataset.intervene(index, drop=dropped), folder / kept_file(present - set(dropped)))
    for number in range(dataset.n_background(index)):
        _save(dataset.intervene(index, drop_background=[number]), folder / background_file(number))


def _save(picture: NDArray[np.uint8], path: Path) -> None:
    """Write an opaque RGBA file, as the original has them; folders on the way are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).convert("RGBA").save(path, compress_level=1)


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
