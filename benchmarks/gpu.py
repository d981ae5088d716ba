"""Speed on a GPU: ``python benchmarks/gpu.py``, about eight minutes on one card.

    python benchmarks/gpu.py                               # every table, ResNet-50, 224 px, 200 classes
    python benchmarks/gpu.py --tables suites --profile ops.txt

``training``: steps of every model next to its bare backbone (``benchmarks/training.py``), in float32 and in bf16, and
of ProtoPNet with compiled backbones. ``suites``: each suite next to its passes as bare calls
(``benchmarks/evaluation.py``) and the forward pass alone, all without TF32 as an evaluation is; images are drawn
beforehand. Kernel time, launches and waits of the host come from torch's profiler: of a pass over two batches less one
over one, and what remains is counted once per pass. ``others``: projection, a forward pass in other precisions and
compiled, and two processes that share the card.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities import move_data_to_device
from torch import distributed
from torch.profiler import ProfilerActivity, profile

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import training
from benchmarks.evaluation import SUITES, birds, count_passes, floor_of, make_model
from benchmarks.timing import clock
from benchmarks.works import protopnet
from protometry.callbacks import Interpretability
from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.phases.projection import nearest_patches
from tests.ddp_pool import DdpPool, DdpPoolError
from tests.engine_runs import run_engine

UNITS, CLASSES = 200, 200  # of the suites' model, and of the models that are trained
COLUMNS = (
    "suite", "forward alone, images/s", "its passes, images/s", "suite, images/s", "of its passes",
    "kernels, ms / image", "all, ms / image", "launches / image", "waits / batch", "waits / pass",
)  # fmt: skip
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")


@dataclass(frozen=True)
class Pass:
    """A suite over batches that were made beforehand."""

    model: Any
    data: Any
    engine: Interpretability
    batches: list[Any]

    def __call__(self, count: int | None = None) -> None:
        """Over the first so many batches."""
        with evaluation_mode(self.model):
            run_engine(self.engine, self.model, self.data, batches=self.batches[:count])


def seconds(work: Callable[[], object], device: str) -> float:
    """Of one call."""
    begin = clock(device)
    work()
    return clock(device) - begin


def in_turn(works: dict[str, Callable[[], object]], repeats: int, device: str) -> dict[str, float]:
    """Median seconds of every work, once each to warm up and then in turn."""
    rounds = [[seconds(work, device) for work in works.values()] for _ in range(repeats + 1)][1:]
    return dict(zip(works, map(statistics.median, zip(*rounds, strict=True)), strict=True))


def counted(work: Callable[[], object], report: Path | None = None) -> Counter[str]:
    """Kernels' milliseconds, ``launches`` and ``waits`` of one call."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        work()
    counts: Counter[str] = Counter(ms=0, launches=0, waits=0)
    for event in seen.events():
        on_card = event.device_type == torch.autograd.DeviceType.CUDA
        counts["ms"] += event.time_range.elapsed_us() / 1e3 if on_card else 0
        counts["launches"] += not on_card and event.name.startswith(("cudaLaunchKernel", "cuLaunchKernel"))
        counts["waits"] += not on_card and event.name in WAITS
    if report:
        tables = (seen.key_averages().table(sort_by=key, row_limit=40) for key in ("cuda_time_total", "cpu_time_total"))
        report.write_text("\n".join(tables))
    return counts


def suites(arguments: argparse.Namespace) -> None:
    """Each suite next to its passes and to the forward pass alone."""
    n, batch, device = arguments.images, arguments.batch, arguments.device
    model = make_model(arguments.backbone, arguments.pixels, UNITS).to(device)
    data = birds(arguments.pixels, n, batch)
    data.configure_loaders(continuity="paper")
    batches = [move_data_to_device(drawn, torch.device(device)) for drawn in data.test_dataloader()]

    def forward() -> None:
        with evaluation_mode(model), torch.inference_mode():
            for drawn in batches:
                model(drawn["image"])

    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    for suite in arguments.suites:
        engine = Interpretability([suite])
        suite_pass = Pass(model, data, engine, batches)
        passes = count_passes(model, data, engine)
        chunk = engine.evaluation.protocol["images_per_forward"]

        def floor(passes: Any = passes, chunk: int = chunk) -> None:
            with evaluation_mode(model):
                floor_of(model, passes, arguments.pixels, n, chunk)

        times = in_turn({"forward": forward, "floor": floor, "suite": suite_pass}, arguments.repeats, device)
        once, twice = (counted(partial(suite_pass, count), arguments.profile) for count in (1, 2))
        each = {name: twice[name] - once[name] for name in once}
        rates = " | ".join(f"{n / time:,.0f}" for time in times.values())
        shares = f"{times['floor'] / times['suite']:.2f} | {each['ms'] / batch:.2f} | {1e3 * times['suite'] / n:.2f}"
        counts = f"{each['launches'] / batch:.0f} | {each['waits']} | {once['waits'] - each['waits']}"
        print(f"| {suite} | {rates} | {shares} | {counts} |", flush=True)
    print(f"\n{n} images in batches of {batch}, {chunk} per forward pass")


def others(arguments: argparse.Namespace) -> None:
    """Projection, precisions and processes."""
    n, batch, device = arguments.images, arguments.batch, arguments.device
    model = protopnet(CLASSES, 10, arguments.pixels, arguments.backbone).eval().to(device)
    images = torch.rand(batch, 3, arguments.pixels, arguments.pixels, device=device)
    keys = torch.arange(batch, device=device)
    fed = [{"image": images, "sample_key": keys, "label": keys % CLASSES, "sample_id": [""] * batch}] * (n // batch)
    compiled = torch.compile(model.backbone)

    def latent(module: Any = model.backbone, half: bool = False) -> None:
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=half):
            for drawn in fed:
                model.addon(module(drawn["image"]))

    def exact(work: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            with evaluation_mode(model):
                work()

        return run

    works: dict[str, Callable[[], object]] = {
        "projection, 200 classes × 10": exact(lambda: nearest_patches(model, fed, torch.device(device))),
        "its latent, float32": exact(latent),
        "latent, TF32": latent,
        "latent, bf16": partial(latent, half=True),
        "latent, float32, compiled": exact(partial(latent, compiled)),
        "latent, bf16, compiled": partial(latent, compiled, half=True),
    }
    print("| work | images/s |\n|---|---|")
    for name, time in in_turn(works, arguments.repeats, device).items():
        print(f"| {name} | {n // batch * batch / time:,.0f} |", flush=True)
    for count in (1, 2):
        print(f"| suite quanproto, {count} processes on the card | {shared(arguments, count)} |", flush=True)


def share(rank: int, processes: int, arguments: argparse.Namespace) -> float:
    """Seconds of a process for its share of the images, the second time."""
    model = make_model(arguments.backbone, arguments.pixels, UNITS).to(arguments.device)
    data, engine = birds(arguments.pixels, arguments.images), Interpretability(["quanproto"])
    data.configure_loaders(continuity="paper")
    drawn = list(data.test_dataloader())[rank::processes]
    suite_pass = Pass(model, data, engine, move_data_to_device(drawn, torch.device(arguments.device)))
    suite_pass()
    distributed.barrier()
    return seconds(suite_pass, arguments.device)


def shared(arguments: argparse.Namespace, count: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        pool = DdpPool(Path(folder), world_size=count)
        try:
            return f"{arguments.images / max(pool.run(share, arguments)):,.0f}"
        except DdpPoolError as error:
            return f"failed: {str(error).strip().splitlines()[-1]}"
        finally:
            pool.close()


def train(arguments: argparse.Namespace) -> None:
    """Tables of training, one after the other."""
    shape = ["--backbone", arguments.backbone, "--pixels", str(arguments.pixels), "--batch", str(arguments.batch)]
    given = [*shape, "--classes", str(CLASSES), "--steps", str(arguments.steps), "--device", arguments.device]
    given += ["--repeats", str(arguments.repeats)]
    some = ["--models", *(arguments.models or training.MODELS)]
    for title, more in {
        "float32 (TF32 in convolutions)": some,
        "bf16-mixed": [*some, "--precision", "bf16-mixed"],
        "bf16-mixed, compiled backbones": ["--models", "ProtoPNet", "--precision", "bf16-mixed", "--compile"],
    }.items():
        print(f"\n{title}, {arguments.batch} images per step\n")
        training.main([*given, *more])


TABLES = {"training": train, "suites": suites, "others": others}


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument("--models", nargs="+", choices=training.MODELS, help="of the tables of training")
    parser.add_argument("--suites", nargs="+", default=SUITES)
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--batch", type=int, default=64, help="images per step, and per batch of an evaluation")
    parser.add_argument("--images", type=int, default=128, help="of an evaluation")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=3, help="of each time; the median counts")
    parser.add_argument("--profile", type=Path, help="file for the profiler's tables of the last suite")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu only to try the script out")
    arguments = parser.parse_args(given)
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("Expected a CUDA device, but torch finds none. On a CPU, run benchmarks/rows.py instead.")
    card = torch.cuda.get_device_name() if arguments.device == "cuda" else "no GPU"
    print(f"{card}, torch {torch.__version__}, {arguments.backbone}, {arguments.pixels} px")
    for name in arguments.tables:
        print(f"\n## {name}\n", flush=True)
        TABLES[name](arguments)


if __name__ == "__main__":
    main()
