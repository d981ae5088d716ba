"""SketchBirds in the layout of Animals with Attributes 2 (Xian et al. 2018)."""

from __future__ import annotations

from pathlib import Path

import torch

from protometry.datamodules.export.images import all_images, padded_names, save_jpeg, write_lines
from protometry.datamodules.progress import track
from protometry.datamodules.sketch_birds import SketchBirds
from protometry.datamodules.sketch_birds.class_table import all_attributes

FOLDER = "Animals_with_Attributes2"


def export_awa2(birds: SketchBirds, out: Path) -> None:
    """Write images, class lists and the two matrices of the 40 attributes.

    The binary matrix is the class table, the continuous one how often (in percent) the training images of a class show
    an attribute. The last fifth of the classes is the zero-shot test list.

    Args:
        birds: what is written.
        out: an empty folder, ``root`` for :class:`protometry.datamodules.AwA2`.
    """
    folder = out / FOLDER
    classes, predicates = [_joined(name) for name in padded_names(birds)], all_attributes().names
    for source in track(all_images(birds), "writing images"):
        name = classes[source.label]
        image = source.dataset.image(source.index)
        save_jpeg(image, folder / "JPEGImages" / name / f"{name}_{source.stem}.jpg")
    binary, shares = birds.tables.class_attributes, birds.tables.class_concepts
    assert binary is not None
    assert shares is not None
    percent = torch.zeros_like(binary)
    percent[:, [predicates.index(name) for name in birds.tables.concept_names]] = 100 * shares
    train = len(classes) - max(1, len(classes) // 5)
    write_lines(folder / "classes.txt", _numbered(classes))
    write_lines(folder / "predicates.txt", _numbered([_joined(name) for name in predicates]))
    write_lines(folder / "predicate-matrix-binary.txt", _rows(binary, "d"))
    write_lines(folder / "predicate-matrix-continuous.txt", _rows(percent, ".2f"))
    write_lines(folder / "trainclasses.txt", classes[:train])
    write_lines(folder / "testclasses.txt", classes[train:])


def _joined(name: str) -> str:
    return name.replace(" ", "+")


def _numbered(names: list[str]) -> list[str]:
    return [f"{number:6d}\t{name}" for number, name in enumerate(names, start=1)]


def _rows(matrix: torch.Tensor, form: str) -> list[str]:
    values = matrix.int() if form == "d" else matrix
    return [" ".join(format(value, form) for value in row) for row in values.tolist()]
