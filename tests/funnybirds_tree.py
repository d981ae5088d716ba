"""Small trees in the layout of FunnyBirds; the fixture ``funnybirds_tree`` of ``tests/conftest.py`` writes them."""

import hashlib
from pathlib import Path
from typing import Any

from datamodules.export import export
from datamodules.funnybirds.data_module import FunnyBirds
from datamodules.sketch_birds import SketchBirds


def sketch_birds(classes: int = 8, per_class: int = 3, test: int = 4, size: int = 32) -> SketchBirds:
    """SketchBirds with ``classes`` x ``per_class`` training images; test image 0 has no background object."""
    preset = "tiny" if classes <= 16 else "full"
    return SketchBirds(preset, num_birds=classes, image_size=size, train_size=classes * per_class, test_size=test)


def make_funnybirds(root: Path, **options: int) -> Path:
    """Export :func:`sketch_birds` into a new folder."""
    export("funnybirds", sketch_birds(**options), root)
    return root


def read_funnybirds(root: Path, **options: Any) -> FunnyBirds:
    """The data module of such a tree, in small batches."""
    return FunnyBirds(str(root), **{"image_size": 32, "batch_size": 4, **options})


def fingerprint(folder: Path) -> str:
    """Changes with every name, time and content below a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        digest.update(f"{path.relative_to(folder)} {path.stat().st_mtime_ns}".encode())
        digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()
