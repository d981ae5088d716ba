"""The data sets of the contract test, each with a few files; a new data set adds one line to ``SETS``."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protometry import datamodules
from protometry.datamodules.photos.data_module import PhotoDataModule
from tests.cub_tree import add_image_labels, make_cub
from tests.funnybirds_tree import make_funnybirds
from tests.nico_tree import make_nico
from tests.photo_trees import (
    make_awa2,
    make_cars,
    make_cars_in_one,
    make_flat,
    make_folders,
    make_table,
    write_attributes,
)


@dataclass(frozen=True)
class Made:
    """Files of a data set, and how they are read; ROOT in an option stands for their folder.

    Args:
        write: writes the files.
        kind: name of the data module, whose data set is named alike.
        module: options of the data module.
        plain: options of the plain data set.
    """

    write: Callable[[Path], object]
    kind: str
    module: dict[str, Any] = field(default_factory=dict)
    plain: dict[str, Any] = field(default_factory=dict)

    def read(self, root: Path, **options: Any) -> PhotoDataModule:
        """The data module."""
        return getattr(datamodules, self.kind)(str(root), **_placed(self.module, root), **options)

    def read_plain(self, root: Path, **options: Any) -> datamodules.ImageDataset:
        """The plain data set."""
        return getattr(datamodules, f"{self.kind}Dataset")(str(root), **_placed(self.plain, root), **options)


def _placed(options: dict[str, Any], root: Path) -> dict[str, Any]:
    return {
        name: value.replace("ROOT", str(root)) if isinstance(value, str) else value for name, value in options.items()
    }


def attributed_folder(root):
    write_attributes(make_folders(root).with_suffix(".csv"), {"ant": [1, 1, 0], "bee": [1, 1, 1]})


def labelled_cub(root):
    add_image_labels(make_cub(root))


TABLE, FLAT, IMAGE_LEVEL = {"attribute_table": "ROOT.csv"}, {"layout": "flat"}, {"concept_level": "image"}
PHOTOS = {"table": "ROOT/photos.csv"}
ATTRIBUTES = PHOTOS | {"task": "attributes"}
SETS = {
    "AwA2": Made(make_awa2, "AwA2"), "AwA2 single": Made(make_awa2, "AwA2", {"task": "single"}, {"multi_label": False}),
    "Cars196": Made(make_cars, "Cars196"), "Cars196 in one": Made(make_cars_in_one, "Cars196", {"scheme": "official"}),
    "Cub200": Made(make_cub, "Cub200"), "Cub200 image level": Made(labelled_cub, "Cub200", IMAGE_LEVEL, IMAGE_LEVEL),
    "Cub200 masks": Made(lambda root: make_cub(root, masks=True), "Cub200", {"crop": "box"}),
    "FunnyBirds": Made(make_funnybirds, "FunnyBirds"),
    "ImageFolder": Made(lambda root: make_folders(root, {"train": 8, "val": 3}), "ImageFolder"),
    "ImageFolder flat": Made(make_flat, "ImageFolder", FLAT, FLAT),
    "ImageFolder attributes": Made(attributed_folder, "ImageFolder", TABLE, TABLE),
    "ImageFolder table": Made(make_table, "ImageFolder", {"crop": "box"} | PHOTOS, PHOTOS),
    "ImageFolder table of attributes": Made(make_table, "ImageFolder", ATTRIBUTES, ATTRIBUTES),
    "Nico": Made(lambda root: make_nico(root, per_context=2), "Nico"),
}  # fmt: skip
