"""SketchBirds in the layout of Animals with Attributes 2 (Xian et al. 2018)."""

import torch

from protometry.datamodules.awa2 import BINARY, CLASSES, CONTINUOUS, FOLDER, IMAGES, PREDICATES
from protometry.datamodules.sketch_birds.class_table import all_attributes
from tests.exports.images import all_images, padded_names, save_jpeg, write_lines


def export_awa2(birds, out):
    """Write images, class lists and the two matrices of the 40 attributes.

    The binary matrix is the class table, the continuous one how often (in percent) the training images of a class show
    an attribute. Training images that lose parts keep the attributes of their class.
    """
    folder = out / FOLDER
    classes = [name.replace(" ", "+") for name in padded_names(birds)]
    predicates = all_attributes().names
    for source in all_images(birds):
        name = classes[source.label]
        save_jpeg(source.dataset.image(source.index), folder / IMAGES / name / f"{name}_{source.stem}.jpg")
    binary = birds.tables.class_attributes
    percent = torch.zeros_like(binary)
    columns = [predicates.index(name) for name in birds.tables.concept_names]
    percent[:, columns] = 100 * birds.tables.class_concepts
    write_lines(folder / CLASSES, _numbered(classes))
    write_lines(folder / PREDICATES, _numbered([name.replace(" ", "+") for name in predicates]))
    write_lines(folder / BINARY, _rows(binary.int(), "d"))
    write_lines(folder / CONTINUOUS, _rows(percent, ".2f"))


def _numbered(names):
    return [f"{number:6d}\t{name}" for number, name in enumerate(names, start=1)]


def _rows(matrix, form):
    return [" ".join(format(value, form) for value in row) for row in matrix.tolist()]
