"""SketchBirds in the layout of CUB-200-2011 (Wah et al. 2011)."""

from collections import defaultdict

import numpy as np
from PIL import Image

from protometry.datamodules.cub200 import rows as files
from protometry.datamodules.cub200.attributes import CONTINUOUS, IMAGE_LABELS, NAMES
from tests.exports.images import all_images, save_jpeg, write_lines

REGION_OF_PART = {"beak": "bill", "foot": "leg"}


def export_cub(birds, out):
    """Write images, masks and every table, ``attributes.txt`` and masks above the main folder.

    Image ids count train, validation and test images; the first two are the official training part. Points keep their
    fractions of a pixel, where the original has whole ones. The L concepts of the preset are the attributes, so that
    reading them back takes ``concept_selection: all``.
    """
    folder = out / files.FOLDER
    classes = [f"{number:03d}.{name.replace(' ', '_')}" for number, name in enumerate(birds.class_names, start=1)]
    tables = defaultdict(list)
    for number, source in enumerate(all_images(birds), start=1):
        sample = source.dataset[source.index]
        path = f"{classes[source.label]}/{source.stem}.jpg"
        save_jpeg(source.dataset.image(source.index), folder / "images" / path)
        _save_mask(sample, (out / files.MASKS / path).with_suffix(".png"))
        tables[files.IMAGES].append(f"{number} {path}")
        for name, lines in _annotations(number, source, sample).items():
            tables[name] += lines
    for name, lines in tables.items():
        write_lines(folder / name, lines)
    write_lines(folder / files.CLASSES, _numbered(classes))
    write_lines(folder / files.PARTS, _numbered(birds.tables.part_names))
    percent = (100 * birds.tables.class_concepts.double()).tolist()
    write_lines(folder / CONTINUOUS, [" ".join(f"{value:.4f}" for value in row) for row in percent])
    write_lines(out / NAMES, _numbered([attribute_name(name) for name in birds.tables.concept_names]))


def attribute_name(concept):
    """The name of a concept as CUB would write it: ``has_bill_type::cone`` for ``beak::cone``."""
    question, answer = concept.split("::")
    part, _, kind = question.partition("_")
    return f"has_{REGION_OF_PART.get(part, part)}_{kind or 'type'}::{answer.replace(' ', '_')}"


def _annotations(number, source, sample):
    """The rows of one image in every table but ``images.txt``."""
    x0, y0, x1, y1 = sample["bounding_box"].tolist()
    points = zip(sample["part_points"].numpy(), sample["part_visible"].tolist(), strict=True)
    concepts = zip(sample["concepts"].tolist(), sample["concept_certainty"].tolist(), strict=True)
    return {
        files.LABELS: [f"{number} {source.label + 1}"],
        files.SPLIT: [f"{number} {int(source.dataset.split != 'test')}"],
        files.BOXES: [f"{number} {x0} {y0} {x1 - x0 + 1} {y1 - y0 + 1}"],
        files.PART_LOCATIONS: [
            f"{number} {part} {x!s} {y!s} {seen:d}" for part, ((x, y), seen) in enumerate(points, 1)
        ],
        IMAGE_LABELS: [f"{number} {concept} {has:d} {sure} 0.0" for concept, (has, sure) in enumerate(concepts, 1)],
    }


def _save_mask(sample, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(255 * sample["object_mask"].numpy().astype(np.uint8)).save(path)


def _numbered(names):
    return [f"{number} {name}" for number, name in enumerate(names, start=1)]
