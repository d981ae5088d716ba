"""How many SketchBirds images one core makes per second: ``python benchmarks/sketch_birds.py``.

Prints images with label map and full samples per second of CPU time, scene included, for four image sizes, next to the
floor of 1,000 full samples at 128 px. Torch runs on one thread.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from protometry.datamodules.sketch_birds import SketchBirds, SketchBirdsDataset
from protometry.datamodules.sketch_birds.render import draw_image, draw_label_map, primitives

TARGET = (128, 1000)


def rate(work: Callable[[int], object], images: int) -> float:
    """Calls per second of CPU time, after ten calls to warm up."""
    for index in range(10):
        work(index)
    start = time.process_time()
    for index in range(images):
        work(index)
    return images / (time.process_time() - start)


def image_and_map(dataset: SketchBirdsDataset, index: int) -> None:
    scene = dataset.scene(index)
    polygons = primitives(scene)
    draw_image(scene, polygons, dataset.image_size)
    draw_label_map(polygons, dataset.image_size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1000, help="images per measurement")
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128, 224, 256], help="image sides in pixels")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'px':>5} {'image + map/s':>14} {'full sample/s':>14} {'training sample/s':>18}")
    for size in arguments.sizes:
        birds = SketchBirds("default", image_size=size, test_size=arguments.images, train_size=arguments.images)
        test, train = birds.dataset("test"), birds.dataset("train")
        rendered = rate(lambda i, data=test: image_and_map(data, i), arguments.images)
        full = rate(test.__getitem__, arguments.images)
        training = rate(train.__getitem__, arguments.images)
        note = f"   target {TARGET[1]}" if size == TARGET[0] else ""
        print(f"{size:>5} {rendered:>14,.0f} {full:>14,.0f} {training:>18,.0f}{note}")


if __name__ == "__main__":
    main()
