"""Small trees in the layout of FunnyBirds; the fixture ``funnybirds_tree`` of ``tests/conftest.py`` writes them."""

import functools
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from protometry.datamodules.funnybirds.data_module import FunnyBirds
from protometry.datamodules.sketch_birds import SketchBirds
from tests.exports import export


def sketch_birds(classes: int = 8, per_class: int = 3, test: int = 4, size: int = 32) -> SketchBirds:
    """SketchBirds with ``classes`` x ``per_class`` training images; test image 0 has no background object."""
    preset = "tiny" if classes <= 16 else "full"
    return SketchBirds(preset, num_birds=classes, image_size=size, train_size=classes * per_class, test_size=test)


def make_funnybirds(root: Path, **options: int) -> Path:
    """A new folder with the export of :func:`sketch_birds`, which is made once and then copied."""
    shutil.copytree(_exported(**options), root, dirs_exist_ok=True)
    return root


def read_funnybirds(root: Path, **options: Any) -> FunnyBirds:
    """The data module of such a tree, in small batches."""
    return FunnyBirds(str(root), **{"image_size": 32, "batch_size": 4, **options})


@functools.cache
def _exported(**options: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="funnybirds"))
    weakref.finalize(_exported, shutil.rmtree, folder, ignore_errors=True)  # when the process ends
    export("funnybirds", sketch_birds(**options), folder / "birds")
    return folder / "birds"
