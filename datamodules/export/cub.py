"""SketchBirds in the layout of CUB-200-2011 (Wah et al. 2011)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from protometry.datamodules.cub200.attributes import CONTINUOUS, IMAGE_LABELS, NAMES
from protometry.datamodules.cub200.rows import (
    BOXES,
    CLASSES,
    FOLDER,
    IMAGES,
    LABELS,
    MASKS,
    PART_LOCATIONS,
    PARTS,
    SPLIT,
)
from protometry.datamodules.export.images import Source, all_images, save_jpeg, write_lines
from protometry.datamodules.progress import track
from protometry.datamodules.sample import Sample
from protometry.datamodules.sketch_birds import SketchBirds

CERTAINTIES = ("not visible", "guessing", "probably", "definitely")
REGION_OF_PART = {"beak": "bill", "foot": "leg"}


def export_cub(birds: SketchBirds, out: Path) -> None:
    """Write images, masks and every table of CUB-200-2011, ``attributes.txt`` and masks above the main folder.

    Image ids count train, validation and test images; the first two are the official training part. Points keep their
    fractions of a pixel, where the original has whole ones. The L concepts of the preset are the attributes, so that
    reading them back takes ``concept_selection: all``.

    Args:
        birds: what is written.
        out: an empty folder, ``root`` for :class:`protometry.datamodules.Cub200`.
    """
    folder = out / FOLDER
    classes = [f"{number:03d}.{name.replace(' ', '_')}" for number, name in enumerate(birds.class_names, start=1)]
    rows: dict[str, list[str]] = {name: [] for name in (IMAGES, LABELS, SPLIT, BOXES, PART_LOCATIONS, IMAGE_LABELS)}
    for number, source in enumerate(track(all_images(birds), "writing images"), start=1):
        sample = source.dataset[source.index]
        path = f"{classes[source.label]}/{source.stem}.jpg"
        save_jpeg(source.dataset.image(source.index), folder / "images" / path)
        _save_mask(sample, (out / MASKS / path).with_suffix(".png"))
        rows[IMAGES].append(f"{number} {path}")
        for name, lines in _annotations(number, source, sample).items():
            rows[name] += lines
    for name, lines in rows.items():
        write_lines(folder / name, lines)
    write_lines(folder / CLASSES, _numbered(classes))
    write_lines(folder / PARTS, _numbered(birds.tables.part_names))
    write_lines(folder / "attributes/certainties.txt", _numbered(list(CERTAINTIES)))
    shares = birds.tables.class_concepts
    assert shares is not None
    percent = (100 * shares.double()).tolist()
    write_lines(folder / CONTINUOUS, [" ".join(f"{value:.4f}" for value in row) for row in percent])
    write_lines(out / NAMES, _numbered([attribute_name(name) for name in birds.tables.concept_names]))


def attribute_name(concept: str) -> str:
    """The name of a concept as CUB would write it: the question with its body region, then the answer.

    Example:
        >>> attribute_name("beak::cone"), attribute_name("tail::red wedge"), attribute_name("wing_color::blue")
        ('has_bill_type::cone', 'has_tail_type::red_wedge', 'has_wing_color::blue')
    """
    question, answer = concept.split("::")
    part, _, kind = question.partition("_")
    return f"has_{REGION_OF_PART.get(part, part)}_{kind or 'type'}::{answer.replace(' ', '_')}"


def _annotations(number: int, source: Source, sample: Sample) -> dict[str, list[str]]:
    """The rows of one image in every table but ``images.txt``."""
    x0, y0, x1, y1 = sample["bounding_box"].tolist()
    points = zip(sample["part_points"].numpy(), sample["part_visible"].tolist(), strict=True)
    concepts = zip(sample["concepts"].tolist(), sample["concept_certainty"].tolist(), strict=True)
    return {
        LABELS: [f"{number} {source.label + 1}"],
        SPLIT: [f"{number} {int(source.dataset.split != 'test')}"],
        BOXES: [f"{number} {x0} {y0} {x1 - x0 + 1} {y1 - y0 + 1}"],
        PART_LOCATIONS: [f"{number} {part} {x!s} {y!s} {seen:d}" for part, ((x, y), seen) in enumerate(points, 1)],
        IMAGE_LABELS: [f"{number} {concept} {has:d} {sure} 0.0" for concept, (has, sure) in enumerate(concepts, 1)],
    }


def _save_mask(sample: Sample, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(255 * sample["object_mask"].numpy().astype(np.uint8)).save(path)


def _numbered(names: list[str]) -> list[str]:
    return [f"{number} {name}" for number, name in enumerate(names, start=1)]
