"""NICO (He et al. 2021) as a plain data set: photos of animals with the contexts they are seen in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protometry.datamodules.nico import files
from protometry.datamodules.nico.hsv_rule import Group
from protometry.datamodules.photos.dataset import PhotoDataset, PhotoTable
from protometry.datamodules.photos.problems import Problems
from protometry.datamodules.photos.verify import ImageFile
from protometry.datamodules.sample import ClassTables, nfc
from protometry.datamodules.transforms.crop_and_augment import PhotoTransform, PhotoVariant


@dataclass(frozen=True, kw_only=True)
class NicoTable(PhotoTable):
    """What folders and colours say about the photos; ``groups`` are those of the HSV rule."""

    groups: list[Group]


class NicoDataset(PhotoDataset):
    """The photos of NICO with their contexts, as an evaluation sees them.

    Every photo is decoded once, and the result remembered in the cache folder.

    Args:
        root: the folder of the classes, or the one that holds it; only read.
        variant: ``quanproto`` also leaves out the files that the published pipeline deletes: extensions in upper case
            and modes other than RGB, L and RGBA in files that are not PNG.
        num_workers: processes that decode.
        transform: what makes the model's frame; by default, photos are resized to 224 x 224 pixels.

    Raises:
        FileNotFoundError: if the folder is not found.
        ValueError: if a class has no photo that can be used.
    """

    table: NicoTable

    def __init__(
        self,
        root: str,
        variant: PhotoVariant = "paper",
        num_workers: int = 0,
        transform: PhotoTransform | None = None,
    ) -> None:
        table, context_names = _read(root, variant, num_workers)
        super().__init__(table, transform or PhotoTransform(variant=variant))
        self.tables = ClassTables(context_names=context_names)


def _read(root: str, variant: PhotoVariant, num_workers: int) -> tuple[NicoTable, list[str]]:
    folder, class_names = files.find_folder(root), files.read_classes(root)
    names = files.read_photos(folder)
    looks = dict(zip(names, files.look_at_photos(folder, names, num_workers), strict=True))
    files.warn_left_alone(folder, [name for name, look in looks.items() if look.group is None], "do not decode")
    kept = {name: look.group for name, look in looks.items() if look.group and _keeps(look, variant)}
    labels = [class_names.index(nfc(name.split("/")[0])) for name in kept]
    problems = Problems(f"NICO in {folder}", "Replace the photos that do not decode, or move the folder away.")
    for label in sorted(set(range(len(class_names))) - set(labels)):
        problems.wrong(f"class {class_names[label]!r} has 0 photos that can be used")
    problems.raise_any()
    contexts = [nfc(name.split("/")[1]) for name in kept]
    context_names = sorted(set(contexts))
    table = NicoTable(
        dataset="nico",
        folder=folder,
        class_names=class_names,
        files=[ImageFile(name, folder / name) for name in kept],
        labels=np.array(labels, dtype=np.int64),
        contexts=np.array([context_names.index(name) for name in contexts], dtype=np.int64),
        groups=list(kept.values()),
    )
    return table, context_names


def _keeps(look: files.Look, variant: PhotoVariant) -> bool:
    return look.published or variant == "paper"
