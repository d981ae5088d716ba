"""A data set of your own: photos and a table next to them, with boxes and an official test part.

    python examples/own_data.py

The folder made here stands for yours. Photos that lie in `DIR/train/CLASS` and `DIR/test/CLASS` need no code:
`protometry.datamodules.ImageFolder`.
"""

import csv
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from protometry.datamodules.photos.data_module import PhotoDataModule
from protometry.datamodules.photos.dataset import PhotoDataset, PhotoTable
from protometry.datamodules.photos.files import locate, read_text
from protometry.datamodules.photos.verify import ImageFile

REMEDY = "Run examples/own_data.py, which draws the photos."


def read_table(root: str) -> PhotoTable:
    """Files, classes, parts and boxes of all photos."""
    folder = locate(root, "shapes", "shapes.csv", REMEDY)
    rows = list(csv.DictReader(read_text(folder / "shapes.csv").splitlines()))
    names = sorted({row["shape"] for row in rows})
    return PhotoTable(
        dataset="shapes",
        folder=folder,
        class_names=names,
        files=[ImageFile(row["path"], folder / row["path"]) for row in rows],
        labels=np.array([names.index(row["shape"]) for row in rows]),
        is_test=np.array([row["part"] == "test" for row in rows]),
        boxes=np.array([[float(row[corner]) for corner in ("x0", "y0", "x1", "y1")] for row in rows]),
    )


class Shapes(PhotoDataModule):
    """Squares and discs."""

    title, remedy, scheme = "Shapes", REMEDY, "official"

    def photo_dataset(self) -> PhotoDataset:
        """All photos."""
        return PhotoDataset(read_table(self.root), self.transform())


def draw(folder: Path, number: int = 40) -> None:
    """Photos and their table."""
    (folder / "shapes").mkdir()
    generator = np.random.default_rng(0)
    with (folder / "shapes/shapes.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "shape", "part", "x0", "y0", "x1", "y1"])
        for index in range(number):
            shape, (x, y) = ("disc", "square")[index % 2], generator.integers(4, 30, 2).tolist()
            photo = Image.effect_noise((64, 64), 40).convert("RGB")
            painter = ImageDraw.Draw(photo)
            (painter.ellipse if shape == "disc" else painter.rectangle)((x, y, x + 24, y + 24), fill="orange")
            photo.save(folder / f"shapes/{index}.png")
            table.writerow([f"{index}.png", shape, "test" if index % 4 > 1 else "train", x, y, x + 24, y + 24])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder))
        data = Shapes(folder, image_size=64, batch_size=8)
        data.prepare_data()  # checks files and table, and names everything that is wrong
        data.setup("fit")
        batch = next(iter(data.train_dataloader()))
        print({name: tuple(value.shape) for name, value in batch.items() if hasattr(value, "shape")})
        print(data.class_names, {split: len(data.dataset(split)) for split in ("train", "val", "test")})
