"""SketchBirds in the layout of FunnyBirds (Hesse et al. 2023), with part maps and interventions."""

import json
from itertools import combinations

import numpy as np
from PIL import Image

from protometry.datamodules.bird_parts import COLORED, COLORS, PART_NAMES, SHAPE_NAMES
from protometry.datamodules.funnybirds.files import background_file, intervention_folder, kept_file, maps_folder
from protometry.datamodules.funnybirds.part_maps import LABEL_COLORS
from protometry.datamodules.funnybirds.tables import CLASSES, PARTS, PLACEHOLDER, Scenes, table_name
from protometry.datamodules.sketch_birds.scene import OBJECT_COLORS

OBJECT_COLOR_NAMES = dict(zip(OBJECT_COLORS, ("red", "green", "blue", "yellow"), strict=True))


def export_funnybirds(birds, out):
    """Write images, part maps, tables and, for test, every rendering without parts or without one background object.

    Train and test only: the layout has no validation images. Models and colours of ``parts.json`` are named as in the
    original, whose index rule SketchBirds shares; ``bg_objects`` and the lists after it say what SketchBirds drew, not
    camera and light. The layout has no place for occluders.
    """
    datasets = {split: birds.dataset(split) for split in ("train", "test")}
    if occluders := datasets["test"].knobs.occluders:
        raise ValueError(f"Expected argument `occluders` to be 0 for the layout funnybirds, but got {occluders}.")
    variants = part_variants()
    _write_json(out / PARTS, variants)
    classes = enumerate(datasets["test"].classes)
    _write_json(out / CLASSES, [{"class_idx": label, "parts": parts} for label, parts in classes])
    for split, dataset in datasets.items():
        _write_json(out / table_name(split), [_entry(dataset.scene(i), variants) for i in range(len(dataset))])
        scenes = _scenes(dataset)
        for index in range(len(dataset)):
            _save(dataset.image(index), out / split / scenes.file(index))
            _save(label_colors(dataset.label_map(index)), out / maps_folder(split) / scenes.file(index))
            if split == "test":
                _save_interventions(dataset, index, out / intervention_folder(scenes, index))


def part_variants():
    """The content of ``parts.json``: the 26 variants of SketchBirds under the names of FunnyBirds."""
    variants = {}
    for part, shapes in SHAPE_NAMES.items():
        models = [f"{part}{number:02d}.glb" for number in range(1, len(shapes) + 1)]
        colors = list(COLORS) if part in COLORED else ["yellow"] if part == "beak" else []
        colored = [{"model": model, "color": color} for color in colors for model in models]
        variants[part] = colored or [{"model": model} for model in models]
    return variants


def label_colors(label_map):
    """The RGB part map of a label map without 255, the inverse of ``label_codes``."""
    colors = np.zeros((256, 3), dtype=np.uint8)
    colors[list(LABEL_COLORS)] = list(LABEL_COLORS.values())
    return colors[label_map]


def _scenes(dataset):
    scenes = [dataset.scene(index) for index in range(len(dataset))]
    return Scenes(
        dataset.split,
        np.array([scene.label for scene in scenes]),
        np.array([scene.kept for scene in scenes]),
        np.array([len(scene.objects) for scene in scenes]),
    )


def _entry(scene, variants):
    """What ``dataset_<split>.json`` says about one image."""
    entry = {"class_idx": scene.label}
    for part, variant, kept in zip(PART_NAMES, scene.variants, scene.kept, strict=True):
        for key, value in variants[part][variant].items():
            entry[f"{part}_{key}"] = value if kept else PLACEHOLDER
    objects = [thing._asdict() | {"color": OBJECT_COLOR_NAMES[thing.color]} for thing in scene.objects]
    for key in ("shape", "x", "y", "half_size", "angle", "color"):
        name = "bg_objects" if key == "shape" else f"bg_{key}"
        entry[name] = "".join(f"{thing[key]}," for thing in objects)
    return entry


def _save_interventions(dataset, index, folder):
    present = dataset.present(index)
    for size in range(len(present) + 1):
        for dropped in combinations(sorted(present), size):
            _save(dataset.intervene(index, drop=dropped), folder / kept_file(present - set(dropped)))
    for number in range(dataset.n_background(index)):
        _save(dataset.intervene(index, drop_background=[number]), folder / background_file(number))


def _save(picture, path):
    """Write an opaque RGBA file, as the original has them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).convert("RGBA").save(path, compress_level=1)


def _write_json(path, content):
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
