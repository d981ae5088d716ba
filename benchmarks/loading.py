"""How many photos a core loads per second beside the work no loader can avoid: ``python benchmarks/loading.py``.

    python benchmarks/loading.py                     # data modules on folders below PROTOMETRY_DATA, else on exports
    python benchmarks/loading.py --data Cub200 --pixels 448 --images 500

Bare is decoding every file a sample is made of (photo, mask, part map) with Pillow, cutting it to the box where the
data module does so, and resizing it with the same filter. Beside it: evaluation samples with all annotations, training
samples without augmentation (target for both: 0.8 of bare), and training samples with the default augmentation. CPU
time of one thread, files in the page cache.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import datamodules
from datamodules import SketchBirds
from datamodules.export import Layout, export
from datamodules.funnybirds_images import BirdPhotos
from datamodules.image_files import decode_image
from datamodules.photo_dataset import PhotoDataset, PhotoTable
from datamodules.photos import PhotoDataModule

DATA = Path(os.environ.get("PROTOMETRY_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))


@dataclass(frozen=True)
class Case:
    """A data module and where its files come from.

    Args:
        kind: its class.
        folder: below ``PROTOMETRY_DATA``, or None if there never is one.
        layout: of the export that stands in where the folder is absent.
        options: further arguments.
        pixels: side of the frame.
        inside: where in the export ``root`` is.
    """

    kind: str
    folder: str | None
    layout: Layout
    options: dict[str, Any]
    pixels: int = 224
    inside: str = ""


CASES = [
    Case("Cub200", "cub", "cub", {"concept_selection": "all"}),
    Case("Cub200", "cub", "cub", {"concept_selection": "all", "crop": "box"}),
    Case("ImageFolder", "tiny_imagenet", "awa2", {}, 64, "Animals_with_Attributes2/JPEGImages"),
    Case("FunnyBirds", "funnybirds10", "funnybirds", {}, 256),
    Case("AwA2", None, "awa2", {}),
    Case("Nico", None, "nico", {}),
]


def root_of(case: Case, scratch: Path) -> tuple[Path, str]:
    """The folder of a case's files and what to call it; exports are written once."""
    if case.folder is not None and (DATA / case.folder).is_dir():
        return DATA / case.folder, case.folder
    out = scratch / case.layout
    if not out.exists():
        contexts = 4 if case.layout == "nico" else 0
        birds = SketchBirds("tiny", image_size=256, train_size=300, val_size=80, test_size=120, contexts=contexts)
        export(case.layout, birds, out)
    return out / case.inside, f"export of SketchBirds as {case.layout}"


def bare(dataset: PhotoDataset, pixels: int) -> Callable[[int], list[NDArray[np.uint8]]]:
    """Decoding and resizing the files of one sample: the photo, then its maps."""
    table, cropped = dataset.table, dataset.transform.crop == "box"

    def resized(image: NDArray[np.uint8], row: int, interpolation: int) -> NDArray[np.uint8]:
        if cropped and table.boxes is not None:
            x0, y0, x1, y1 = (max(0, int(value)) for value in table.boxes[row])
            image = image[y0 : y1 + 1, x0 : x1 + 1]
        height, width = image.shape[:2]
        if interpolation == cv2.INTER_AREA and (height > pixels or width > pixels):
            image = cv2.resize(image, (min(width, pixels), min(height, pixels)), interpolation=interpolation)
        if image.shape[:2] == (pixels, pixels):
            return image
        enlarged = cv2.INTER_LINEAR if interpolation == cv2.INTER_AREA else interpolation
        return cv2.resize(image, (pixels, pixels), interpolation=enlarged)

    def load(index: int) -> list[NDArray[np.uint8]]:
        row = dataset.rows[index]
        maps = [] if dataset.training else maps_of(table, row)
        image = resized(decode_image(table.files[row].path), row, cv2.INTER_AREA)
        return [image, *(resized(decode_image(path, mode), row, cv2.INTER_NEAREST) for path, mode in maps)]

    return load


def maps_of(table: PhotoTable, row: int) -> list[tuple[Path, Literal["RGB", "L"]]]:
    """The mask and the part map of a photo, if there are any, and their modes."""
    mask, part_map = table.files[row].mask, table.part_map(row) if isinstance(table, BirdPhotos) else None
    maps: list[tuple[Path, Literal["RGB", "L"]]] = [(mask, "L")] if mask else []
    return [*maps, (part_map, "RGB")] if part_map and part_map.is_file() else maps


def seconds(work: Callable[[int], object], count: int) -> float:
    """CPU seconds for so many photos."""
    start = time.process_time()
    for index in range(count):
        work(index)
    return time.process_time() - start


def measure(works: list[Callable[[int], object]], count: int, repeats: int) -> list[float]:
    """Median photos per second of each piece of work, in turns, so that a busy moment of the machine hits all."""
    for work in works:
        seconds(work, min(count, 20))
    times = [[seconds(work, count) for work in works] for _ in range(repeats)]
    return [count / statistics.median(column) for column in zip(*times, strict=True)]


def built(case: Case, root: Path, pixels: int, **options: Any) -> PhotoDataModule:
    """The data module, set up."""
    module: PhotoDataModule = getattr(datamodules, case.kind)(str(root), image_size=pixels, **case.options, **options)
    module.setup()
    return module


def line(case: Case, scratch: Path, pixels: int, images: int, repeats: int) -> str:
    """One row of the table."""
    root, name = root_of(case, scratch)
    plain, usual = built(case, root, pixels, augmentation="none"), built(case, root, pixels)
    test, train = plain.dataset("test"), plain.dataset("train")
    count = min(images, len(test), len(train))
    works = [bare(test, pixels), test.__getitem__, bare(train, pixels), train.__getitem__]
    rates = measure([*works, usual.dataset("train").__getitem__], count, repeats)
    what = case.kind + "".join(f", {key} {value}" for key, value in case.options.items())
    evaluation = f"{rates[0]:.0f} | {rates[1]:.0f} | {rates[1] / rates[0]:.2f}"
    training = " | ".join(f"{rate:.0f} | {rate / rates[2]:.2f}" for rate in rates[3:])
    return f"| {what} | {name} | {pixels} | {count} | {evaluation} | {rates[2]:.0f} | {training} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = list(dict.fromkeys(case.kind for case in CASES))
    parser.add_argument("--data", nargs="+", default=kinds, choices=kinds)
    parser.add_argument("--pixels", type=int, help="side of the frame; each data module's own if not given")
    parser.add_argument("--images", type=int, default=200, help="photos per measurement")
    parser.add_argument("--repeats", type=int, default=5, help="measurements, of which the median")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    columns = ["bare", "evaluation", "of bare", "bare", "training, plain", "of bare", "training", "of bare"]
    print(" | ".join(["| data module", "files", "px", "photos", *columns]) + " |")
    print("|---" * (4 + len(columns)) + "|")
    with tempfile.TemporaryDirectory() as scratch:
        for case in CASES:
            if case.kind in arguments.data:
                pixels = arguments.pixels or case.pixels
                print(line(case, Path(scratch), pixels, arguments.images, arguments.repeats), flush=True)


if __name__ == "__main__":
    main()
