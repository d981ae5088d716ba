"""SketchBirds in the layout of Stanford Cars (Krause et al. 2013), as torchvision has it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import savemat

from protometry.datamodules.cars196 import CORNERS, FOLDER, META, TEST, TRAIN
from protometry.datamodules.export.images import all_images, padded_names, save_jpeg
from protometry.datamodules.progress import track
from protometry.datamodules.sketch_birds import SketchBirds

HEADER = b"MATLAB 5.0 MAT-file".ljust(116)  # of a table; SciPy's own holds the time, and exports would differ by it


def export_cars196(birds: SketchBirds, out: Path) -> None:
    """Write images, their boxes and the names of the classes.

    Images are numbered in either list; training and validation images are the list for training.

    Args:
        birds: what is written.
        out: an empty folder, ``root`` for :class:`protometry.datamodules.Cars196`.
    """
    folder = out / FOLDER
    tables = {"cars_train": f"devkit/{TRAIN}", "cars_test": TEST}
    rows: dict[str, list[tuple[int | str, ...]]] = {part: [] for part in tables}
    for source in track(all_images(birds), "writing images"):
        part = "cars_test" if source.dataset.split == "test" else "cars_train"
        name = f"{len(rows[part]) + 1:05d}.jpg"
        save_jpeg(source.dataset.image(source.index), folder / part / name)
        corners = source.dataset[source.index]["bounding_box"].int() + 1
        rows[part].append((*corners.tolist(), source.label + 1, name))
    fields = [(field, object) for field in (*CORNERS, "class", "fname")]
    for part, table in tables.items():
        _save_table(folder / table, annotations=np.array([rows[part]], dtype=fields))
    _save_table(folder / "devkit" / META, class_names=np.array([padded_names(birds)], dtype=object))


def _save_table(path: Path, **variables: Any) -> None:
    """Write a .mat file whose bytes follow from its content."""
    buffer = io.BytesIO()
    savemat(buffer, variables)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(HEADER + buffer.getvalue()[len(HEADER) :])
