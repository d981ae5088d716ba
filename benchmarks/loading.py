"""Photos loaded per second and core, next to the work no loader can avoid: ``python benchmarks/loading.py``.

    python benchmarks/loading.py                     # data modules on folders below PROTOMETRY_DATA, else on exports
    python benchmarks/loading.py --data Cub200 --pixels 448 --images 500

Bare is decoding every file a sample is made of (photo, mask, part map) with Pillow, cutting it to the box where the
data module does so, and resizing it with the same filter; nothing is kept. Compared with it, float batches: of
evaluation with all annotations, of training without augmentation, and of training with the default augmentation. Kept
are evaluation and training with the default augmentation, with photos in a cache.

Two tables: CPU time of one thread (target: 0.8 of bare), and wall time of a loader with two worker processes, next to
the same loader whose workers do the bare work and send nothing. Files are in the page cache.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protometry import datamodules
from protometry.datamodules import SketchBirds
from protometry.datamodules.dataset import ImageLoader
from protometry.datamodules.funnybirds.dataset import BirdTable
from protometry.datamodules.photos.data_module import PhotoDataModule
from protometry.datamodules.photos.dataset import PhotoDataset, PhotoTable
from protometry.datamodules.photos.files import decode_image
from tests.exports import Layout, export

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
    mask, part_map = table.files[row].mask, table.part_map(row) if isinstance(table, BirdTable) else None
    maps: list[tuple[Path, Literal["RGB", "L"]]] = [(mask, "L")] if mask else []
    return [*maps, (part_map, "RGB")] if part_map else maps


class Work(Dataset[Any]):
    """A piece of work on every photo that sends nothing back."""

    def __init__(self, work: Callable[[int], object], length: int) -> None:
        self._work, self._length = work, length

    def __len__(self) -> int:
        return self._length

    def __getitems__(self, indices: Sequence[int]) -> list[int]:
        for index in indices:
            self._work(index)
        return [0]


Source = PhotoDataset | Work


def loader(source: Source, count: int, batch: int, workers: int) -> DataLoader[Any]:
    """Batches of so many photos; a small data set is repeated."""
    indices = [index % len(source) for index in range(count)]
    options: dict[str, Any] = {"batch_size": batch, "sampler": indices, "num_workers": workers}
    return DataLoader(source, **options) if isinstance(source, Work) else ImageLoader(source, **options)


def cpu_rates(sources: Sequence[Source], count: int, batch: int, repeats: int) -> list[float]:
    """Photos per second of CPU time of this thread; a batch of each in turn, so that a busy machine hits all."""
    times = []
    for _ in range(repeats + 1):
        passes = [iter(loader(source, count, batch, 0)) for source in sources]
        times.append(
            np.sum([[_seconds(one, time.process_time) for one in passes] for _ in range(count // batch)], axis=0)
        )
    return list(count // batch * batch / np.median(times[1:], axis=0))


def wall_rates(sources: Sequence[Source], count: int, batch: int, repeats: int, workers: int) -> list[float]:
    """Photos per second of a loader with workers, once they are under way."""
    head = 2 * workers

    def rate(source: Source) -> float:
        batches = iter(loader(source, count + head * batch, batch, workers))
        for _ in range(head):
            next(batches)
        start = time.perf_counter()
        for _ in batches:
            pass
        return count / (time.perf_counter() - start)

    return list(np.median([[rate(source) for source in sources] for _ in range(repeats)], axis=0))


def _seconds(batches: Iterator[object], clock: Callable[[], float]) -> float:
    start = clock()
    next(batches)
    return clock() - start


def built(case: Case, root: Path, pixels: int, **options: Any) -> PhotoDataModule:
    """The data module, set up."""
    module: PhotoDataModule = getattr(datamodules, case.kind)(str(root), image_size=pixels, **case.options, **options)
    module.setup()
    return module


def line(case: Case, scratch: Path, options: argparse.Namespace, workers: int) -> str:
    """One row of a table."""
    pixels = options.pixels or case.pixels
    root, name = root_of(case, scratch)
    plain, usual = built(case, root, pixels, augmentation="none"), built(case, root, pixels)
    kept = built(case, root, pixels, cache=str(scratch / "cache"))
    test, train = plain.dataset("test"), plain.dataset("train")
    sources: list[Source] = [Work(bare(test, pixels), len(test)), test, Work(bare(train, pixels), len(train)), train]
    sources += [usual.dataset("train"), kept.dataset("test"), kept.dataset("train")]
    sizes = options.images // options.batch * options.batch, options.batch, options.repeats
    rates = wall_rates(sources, *sizes, workers) if workers else cpu_rates(sources, *sizes)
    what = case.kind + "".join(f", {key} {value}" for key, value in case.options.items())
    evaluation = f"{rates[0]:.0f} | {rates[1]:.0f} | {rates[1] / rates[0]:.2f}"
    training = " | ".join(f"{rate:.0f} | {rate / rates[2]:.2f}" for rate in rates[3:5])
    cells = [what, name, pixels, evaluation, f"{rates[2]:.0f}", training, *(f"{rate:.0f}" for rate in rates[5:])]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = list(dict.fromkeys(case.kind for case in CASES))
    parser.add_argument("--data", nargs="+", default=kinds, choices=kinds)
    parser.add_argument("--pixels", type=int, help="side of the frame; each data module's own if not given")
    parser.add_argument("--images", type=int, default=384, help="photos per measurement, in whole batches")
    parser.add_argument("--batch", type=int, default=32, help="photos per batch")
    parser.add_argument("--repeats", type=int, default=5, help="measurements; the median counts")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2], help="a table each; 0 is CPU time")
    options = parser.parse_args()
    if options.images < options.batch:
        parser.error(f"Expected --images to be at least --batch, {options.batch}, but got {options.images}.")
    torch.set_num_threads(1)
    columns = ["bare", "evaluation", "of bare", "bare", "training, plain", "of bare", "training", "of bare"]
    columns += ["kept, evaluation", "kept, training"]
    with tempfile.TemporaryDirectory() as scratch:
        for workers in options.workers:
            print(f"\n{workers} workers, wall time\n" if workers else "One thread, CPU time\n")
            print(" | ".join(["| data module", "files", "px", *columns]) + " |")
            print("|---" * (3 + len(columns)) + "|")
            for case in CASES:
                if case.kind in options.data:
                    print(line(case, Path(scratch), options, workers), flush=True)


if __name__ == "__main__":
    main()
