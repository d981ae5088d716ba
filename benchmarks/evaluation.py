"""The cost of an evaluation compared with the forward and backward passes it cannot avoid.

    python benchmarks/evaluation.py                 # ResNet-18, 224 px, 200 units: ratio to the floor per suite

How it grows with units, classes, pixels and processes: ``benchmarks/scale.py``.

The floor of a suite is counted, not estimated: the forwards the model did and the maps that were made, run again as
bare calls of the same model on batches of the same size, with a plain autograd backward to the pixels (frozen
parameters) for every map. Drawing the images, their continuity views and everything else is part of the evaluation's
time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.timing import clock
from protometry.callbacks import Interpretability
from protometry.callbacks.forward.observer import Images, Observer, Seen
from protometry.datamodules import SketchBirds
from protometry.lightning_modules import InterpretableModule, ProtoPNet
from tests.engine_runs import run_engine

SUITES = ("general", "continuity", "complexity", "completeness", "quanproto")


def make_model(
    backbone: str = "resnet18", pixels: int = 224, units: int = 200, classes: int = 8
) -> InterpretableModule:
    """A ProtoPNet with random weights."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"num_classes": classes, "image_size": (pixels, pixels), "backbone": {"name": backbone}}
    return ProtoPNet(prototypes_per_class=units // classes, **options).eval()


def birds(pixels: int, images: int, batch: int = 32) -> SketchBirds:
    """Test images with every field."""
    return SketchBirds("tiny", image_size=pixels, test_size=images, eval_batch_size=batch)


def evaluate(
    model: InterpretableModule, datamodule: SketchBirds, engine: Interpretability, rank: int = 0, processes: int = 1
) -> float:
    """Seconds of one pass over this process's share of the test split, images included."""
    start = clock(model.device)
    run_engine(engine, model, datamodule, batch_size=datamodule.eval_batch_size, rank=rank, world_size=processes)
    return clock(model.device) - start


@dataclass
class Passes:
    """What a suite asks of a model, in images; padding is not counted.

    Args:
        plain: forwards of images that are only scored.
        explained: forwards of images that are explained.
        maps: explanations.
    """

    plain: int = 0
    explained: int = 0
    maps: int = 0


def count_passes(model: InterpretableModule, datamodule: SketchBirds, engine: Interpretability) -> Passes:
    """What one pass over the test split asks of the model."""
    passes, see = Passes(), Observer.see

    def counted(self: Observer, images: Images, *args: Any, explain: bool = False, **options: Any) -> Seen:
        seen = see(self, images, *args, explain=explain, **options)
        passes.plain += 0 if explain else len(images.pixels)
        passes.explained += len(images.pixels) if explain else 0
        passes.maps += seen.unit_ids.numel() if explain else 0
        return seen

    Observer.see = counted  # type: ignore[method-assign, assignment]
    try:
        evaluate(model, datamodule, engine)
    finally:
        Observer.see = see  # type: ignore[method-assign]
    return passes


def floor_of(model: InterpretableModule, passes: Passes, pixels: int, images: int, chunk: int) -> float:
    """Seconds of the passes as bare calls; the first explained forward has the maps the others leave over."""
    batches = torch.rand(images, 3, pixels, pixels, device=model.device).split(chunk)
    plain, explained, maps = (count // images for count in (passes.plain, passes.explained, passes.maps))
    model.requires_grad_(False)
    start = clock(model.device)
    for batch in batches:
        with torch.inference_mode():
            for _ in range(plain):
                model(batch.clone())
        for index in range(explained):
            leaf = batch.clone().requires_grad_()
            scores = model(leaf).scores
            for unit in range(1 if index else maps - explained + 1):
                torch.autograd.grad(scores[:, unit].sum(), leaf, retain_graph=True)
    seconds = clock(model.device) - start
    model.requires_grad_(True)
    return seconds


def floors(arguments: argparse.Namespace) -> None:
    """Each suite's time next to its floor."""
    model = make_model(arguments.backbone, arguments.pixels, arguments.units)
    data = birds(arguments.pixels, arguments.images)
    n = arguments.images
    print("| suite | forwards | explained | backwards | floor, ms / image | evaluation, ms / image | ratio |")
    print("|---|---|---|---|---|---|---|")
    for suite in arguments.suites:
        engine = Interpretability([suite], memory_budget=arguments.memory_budget)
        passes = count_passes(model, data, engine)
        chunk = engine.evaluation.protocol["images_per_forward"]
        times = [  # in turn, so that a busy moment of the machine hits both
            (floor_of(model, passes, arguments.pixels, n, chunk), evaluate(model, data, engine))
            for _ in range(arguments.repeats)
        ]
        floor, seconds = (statistics.median(column) for column in zip(*times, strict=True))
        counts = " | ".join(f"{count / n:.1f}" for count in (passes.plain, passes.explained, passes.maps))
        columns = f"{1e3 * floor / n:.0f} | {1e3 * seconds / n:.0f} | {seconds / floor:.2f}"
        print(f"| {suite} | {counts} | {columns} |", flush=True)
    print(f"\n{chunk} images at a time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", nargs="+", default=SUITES)
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--units", type=int, default=200)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory_budget", type=float)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    floors(arguments)


if __name__ == "__main__":
    main()
