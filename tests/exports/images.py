"""The images of SketchBirds in the order of an export, and the writers of its files."""

from dataclasses import dataclass

from PIL import Image

from protometry.datamodules.sketch_birds import SketchBirdsDataset


@dataclass(frozen=True)
class Source:
    """Image ``index`` of a split."""

    dataset: SketchBirdsDataset
    index: int

    @property
    def label(self):
        return self.dataset.label(self.index)

    @property
    def stem(self):
        """File name without extension, such as ``train_00012``."""
        return self.dataset.sample_id(self.index).replace("/", "_")


def all_images(birds):
    """Every image with every annotation: train, validation, then test."""
    datasets = [birds.dataset(split) for split in ("projection", "val", "test")]
    return [Source(dataset, index) for dataset in datasets for index in range(len(dataset))]


def padded_names(birds):
    """Class names such as ``bird 07``, whose alphabetical order is the order of the classes."""
    width = len(str(len(birds.class_names) - 1))
    return [f"bird {number:0{width}d}" for number in range(len(birds.class_names))]


def save_jpeg(image, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image).save(path, quality=95, subsampling=0)


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
