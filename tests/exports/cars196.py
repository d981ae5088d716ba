"""SketchBirds in the layout of Stanford Cars (Krause et al. 2013), as torchvision has it."""

import io

import numpy as np
from scipy.io import savemat

from protometry.datamodules.cars196 import CORNERS, FOLDER, META, TEST, TRAIN
from tests.exports.images import all_images, padded_names, save_jpeg

HEADER = b"MATLAB 5.0 MAT-file".ljust(116)  # of a table; SciPy's own holds the time, and exports would differ by it


def export_cars196(birds, out):
    """Write images, their boxes and the names of the classes; the list for training has the validation images too."""
    folder = out / FOLDER
    tables = {"cars_train": f"devkit/{TRAIN}", "cars_test": TEST}
    rows = {part: [] for part in tables}
    for source in all_images(birds):
        part = "cars_test" if source.dataset.split == "test" else "cars_train"
        name = f"{len(rows[part]) + 1:05d}.jpg"
        save_jpeg(source.dataset.image(source.index), folder / part / name)
        corners = source.dataset[source.index]["bounding_box"].int() + 1
        rows[part].append((*corners.tolist(), source.label + 1, name))
    fields = [(field, object) for field in (*CORNERS, "class", "fname")]
    for part, table in tables.items():
        _save_table(folder / table, annotations=np.array([rows[part]], dtype=fields))
    _save_table(folder / "devkit" / META, class_names=np.array([padded_names(birds)], dtype=object))


def _save_table(path, **variables):
    """Write a .mat file whose bytes follow from its content."""
    buffer = io.BytesIO()
    savemat(buffer, variables)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(HEADER + buffer.getvalue()[len(HEADER) :])
