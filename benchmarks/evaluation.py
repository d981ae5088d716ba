"""The cost of an evaluation compared with the forward and backward passes it cannot avoid.

    python benchmarks/evaluation.py                       # ResNet-18, 224 px, 200 units: ratio to the floor per suite
    python benchmarks/evaluation.py --tables scaling      # units, units per image, image size
    python benchmarks/evaluation.py --tables memory       # peak memory with 10 times more images
    python benchmarks/evaluation.py --tables communication  # bytes per synchronisation

The floor of a suite is counted, not estimated: the forwards the model did and the maps that were made, run again as
bare calls of the same model on batches of the same size, with a plain autograd backward to the pixels (frozen
parameters) for every map. Drawing the images, their continuity views and everything else is part of the evaluation's
time.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from callbacks import Interpretability
from callbacks.evaluation.observer import Images, Observer, Seen
from datamodules import SketchBirds
from lightning_modules import InterpretableModule, ProtoPNet
from tests.engine_runs import run_engine

SUITES = ("general", "continuity", "complexity", "completeness", "quanproto")


def make_model(backbone: str = "resnet18", pixels: int = 224, units: int = 200) -> InterpretableModule:
    """A ProtoPNet with random weights; ``log`` goes nowhere."""
    torch.manual_seed(0)
    model = ProtoPNet(
        num_classes=8, image_size=(pixels, pixels), prototypes_per_class=units // 8, backbone={"name": backbone}
    ).eval()
    model.log = lambda *args, **kwargs: None
    return model


def birds(pixels: int, images: int) -> SketchBirds:
    """Test images with every field."""
    return SketchBirds("tiny", image_size=pixels, test_size=images, eval_batch_size=32)


def evaluate(model: InterpretableModule, datamodule: SketchBirds, engine: Interpretability) -> float:
    """Seconds of one pass over the test split, images included."""
    start = time.perf_counter()
    run_engine(engine, model, datamodule, batch_size=32)
    return time.perf_counter() - start


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
    batches = torch.rand(images, 3, pixels, pixels).split(chunk)
    plain, explained, maps = (count // images for count in (passes.plain, passes.explained, passes.maps))
    model.requires_grad_(False)
    start = time.perf_counter()
    for batch in batches:
        with torch.inference_mode():
            for _ in range(plain):
                model(batch.clone())
        for index in range(explained):
            leaf = batch.clone().requires_grad_()
            scores = model(leaf).scores
            for unit in range(1 if index else maps - explained + 1):
                torch.autograd.grad(scores[:, unit].sum(), leaf, retain_graph=True)
    seconds = time.perf_counter() - start
    model.requires_grad_(True)
    return seconds


def median_of(repeats: int, function: Callable[[], object]) -> float:
    """Median seconds of several calls, after one that does not count."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


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
        shown = f"{1e3 * floor / n:.0f} | {1e3 * seconds / n:.0f} | {seconds / floor:.2f}"
        print(f"| {suite} | {counts} | {shown} |", flush=True)
    print(f"\n{chunk} images at a time")


def scaling(arguments: argparse.Namespace) -> None:
    """Time per image of the quanproto suite against units, units per image and image side, one at a time."""
    print("| units | k | px | evaluation, ms / image |")
    print("|---|---|---|---|")
    usual = (200, 5, 64)
    settings = [usual]
    settings += [(units, 5, 64) for units in (48, 1000, 2000)]
    settings += [(200, k, 64) for k in (1, 3, 10)]
    settings += [(200, 5, pixels) for pixels in (128, 224)]
    for units, k, pixels in settings:
        model, data = make_model("sketch", pixels, units), birds(pixels, 64)
        engine = Interpretability(["quanproto"], top_k=k)
        seconds = median_of(1, lambda: evaluate(model, data, engine))  # noqa: B023 - called at once
        print(f"| {units} | {k} | {pixels} | {1e3 * seconds / 64:.1f} |", flush=True)


def memory(arguments: argparse.Namespace) -> None:
    """Peak memory of a process that evaluates 64 images, and of one that evaluates 640."""
    print("| images | peak memory, MiB |")
    print("|---|---|")
    for images in (64, 640):
        command = [sys.executable, __file__, "--tables", "peak", "--images", str(images)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        print(f"| {images} | {done.stdout.strip()} |", flush=True)


def peak(arguments: argparse.Namespace) -> None:
    """MiB at most, of this process after one evaluation."""
    evaluate(make_model("sketch", 64), birds(64, arguments.images), Interpretability(["quanproto"]))
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}")


def communication(arguments: argparse.Namespace) -> None:
    """Bytes that every process receives when metrics are synchronised, once per evaluation."""
    model = make_model("sketch", 64, arguments.units)
    engine = Interpretability(["quanproto"])
    evaluate(model, birds(64, arguments.images), engine)
    metrics = {id(metric): metric for metric in engine.this_pass.metrics.values()}.values()
    states = [(type(metric).__name__, *state) for metric in metrics for state in metric.metric_state.items()]
    sizes = {(kind, name): state.numel() * state.element_size() for kind, name, state in states}
    total, concatenated = sum(sizes.values()), sizes.get(("PrototypeEntropy", "scores"), 0)
    print("| processes | bytes received by each | of these concatenated scores (entropy) |")
    print("|---|---|---|")
    for processes in (1, 2, 4):
        share = (processes - 1) * concatenated // processes
        print(f"| {processes} | {(processes - 1) * (total - concatenated) + share:,} | {share:,} |")


TABLES = {table.__name__: table for table in (floors, scaling, memory, peak, communication)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=["floors"], choices=TABLES, help="what to print")
    parser.add_argument("--suites", nargs="+", default=SUITES, help="of the table of floors")
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--units", type=int, default=200)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory_budget", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in arguments.tables:
        TABLES[name](arguments)


if __name__ == "__main__":
    main()
