"""The smallest data set of photos: files ``<class>_<i>.png``, where even numbers are the official test part."""

from pathlib import Path

import numpy as np

from protometry.datamodules.photos.data_module import PhotoDataModule
from protometry.datamodules.photos.dataset import PhotoDataset, PhotoTable
from protometry.datamodules.photos.verify import ImageFile
from protometry.datamodules.transforms.crop_and_augment import PhotoTransform
from tests.photo_trees import photo


def make_toy(folder):
    """Eight grey photos of 40x30 pixels of each of two classes."""
    for c, name in enumerate(("ant", "bee")):
        for i in range(8):
            photo(folder / f"{name}_{i}.png", 8 * c + i + 1)
    return folder


class ToyDataset(PhotoDataset):
    """The photos; ``columns`` replace the table's."""

    def __init__(self, root, transform=None, **columns):
        folder = Path(root)
        names = sorted(path.name for path in folder.iterdir())
        classes = sorted({name.split("_")[0] for name in names})
        table = {
            "dataset": "toy",
            "folder": folder,
            "class_names": classes,
            "files": [ImageFile(name, folder / name) for name in names],
            "labels": np.array([classes.index(name.split("_")[0]) for name in names]),
            "is_test": np.array([int(name.split("_")[1][:-4]) % 2 == 0 for name in names]),
        }
        super().__init__(PhotoTable(**{**table, **columns}), transform or PhotoTransform((60, 80)))


class Toy(PhotoDataModule):
    """Their data module, official by default."""

    title, remedy = "Toy", "Draw it again."
    scheme = "official"
    kind = ToyDataset

    def photo_dataset(self):
        return self.kind(self.root, self.transform())


def toy(root, **options):
    return Toy(str(root), **{"image_size": 16, **options})
