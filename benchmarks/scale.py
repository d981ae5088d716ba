"""How the time and the memory of an evaluation grow with units, classes, pixels, images and processes.

    python benchmarks/scale.py --figure scale.png            # every table, and all curves in one picture
    python benchmarks/scale.py --tables units suites         # some of the tables

One thing grows at a time; everything else stays at suite quanproto, ProtoPNet with random weights on the sketch
backbone, 200 units, 8 classes, 5 units per image, 32 SketchBirds of 56 px. Every image is a bird of the first 8
classes, however many the model knows. Times are CPU time of one thread, drawing the images included, of all settings in
turn: the median with the least and the most. Memory is what a second evaluation in a process of its own holds at most
above what the process holds after the first, with freed memory returned at once. The grey lines of the picture show
what grows in proportion (to the number of pixels, where the side of the image grows) and, for images and processes,
what stays.
"""

from __future__ import annotations

import argparse
import gc
import pickle
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import distributed

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.evaluation import birds, evaluate, make_model
from benchmarks.scale_figure import Panel, Point, draw
from benchmarks.timing import cpu_ms, in_fresh_process, in_turn, peak, show
from protometry.callbacks import Interpretability
from tests.ddp_pool import DdpPool


@dataclass(frozen=True)
class Setting:
    """One evaluation.

    Args:
        suite: of metrics.
        units: prototypes, as many for every class.
        classes: of the model.
        pixels: side of the images.
        top_k: units looked at per image.
        images: of the test split.
    """

    suite: str = "quanproto"
    units: int = 200
    classes: int = 8
    pixels: int = 56
    top_k: int = 5
    images: int = 32

    def work(self, rank: int = 0, processes: int = 1) -> Callable[[], float]:
        """A pass over the share of a process, which returns its seconds."""
        model = make_model("sketch", self.pixels, self.units, self.classes)
        data = birds(self.pixels, self.images)
        return lambda: evaluate(model, data, Interpretability([self.suite], top_k=self.top_k), rank, processes)


@dataclass(frozen=True)
class Axis:
    """What grows.

    Args:
        field: of a setting.
        title: name with unit.
        values: of the field.
        usual: all other fields.
        power: of the value, to which the grey line of the figure is proportional.
    """

    field: str
    title: str
    values: Sequence[int]
    usual: Setting
    power: int = 1

    @property
    def settings(self) -> dict[str, Setting]:
        """A setting for every value."""
        return {str(value): replace(self.usual, **{self.field: value}) for value in self.values}  # type: ignore[arg-type]


USUAL = Setting()
AXES = {
    "units": Axis("units", "units", (200, 1_000, 2_000, 5_000, 10_000), USUAL),
    "classes": Axis("classes", "classes, 2,000 units", (8, 50, 200, 1_000), replace(USUAL, units=2_000)),
    "pixels": Axis("pixels", "image side in px", (56, 112, 224), USUAL, power=2),
    "units_per_image": Axis("top_k", "units per image", (1, 3, 5, 10), USUAL),
    "images": Axis("images", "images", (64, 640), USUAL, power=0),
}
PROCESSES = (1, 2, 4)
SHARED = replace(USUAL, images=256)  # whole chunks for each of four processes
SUITES = ("quanproto", "alignment")
FEW, MANY = 200, 10_000  # units of the table of suites


def peak_of(fields: dict[str, int | str]) -> float:
    """MiB that the evaluation of a setting holds at most."""
    return peak(Setting(**fields).work())  # type: ignore[arg-type]


def measured(settings: dict[str, Setting], repeats: int) -> Iterator[tuple[str, list[float], float]]:
    """Name, CPU milliseconds of a pass, and peak memory in MiB of every setting; all times come first."""
    times = in_turn({name: setting.work() for name, setting in settings.items()}, repeats)
    gc.collect()
    for name, setting in settings.items():
        yield name, times[name], in_fresh_process("scale", "peak_of", asdict(setting))


def along(axis: Axis, repeats: int) -> list[Panel]:
    """The table of an axis, and its curves."""
    print(f"| {axis.title} | CPU ms / image | peak, MiB |\n|---|---|---|")
    time_points, memory_points = [], []
    for name, times, mebibytes in measured(axis.settings, repeats):
        images = axis.settings[name].images
        print(f"| {int(name):,} | {show(times, images)} | {mebibytes:.0f} |", flush=True)
        middle, least, most = (of(times) / images for of in (statistics.median, min, max))
        time_points.append(Point(int(name), middle, least, most))
        memory_points.append(Point(int(name), mebibytes))
    return [
        Panel("CPU ms / image", axis.title, time_points, axis.power),
        Panel("peak, MiB", axis.title, memory_points, axis.power),
    ]


@contextmanager
def counted_bytes() -> Iterator[dict[str, int]]:
    """The bytes of the tensors and of the pickled objects that this process hands to collectives."""
    sent = {"tensors": 0, "objects": 0}

    def counting(name: str, place: int) -> object:
        collective = getattr(distributed, name)

        def counted(*arguments: Any, **options: object) -> object:
            handed = arguments[place]
            if isinstance(handed, torch.Tensor):
                sent["tensors"] += handed.nbytes
            else:
                sent["objects"] += len(pickle.dumps(handed))
            return collective(*arguments, **options)

        return mock.patch.object(distributed, name, counted)

    with ExitStack() as stack:
        for name, place in (("all_reduce", 0), ("all_gather", 1), ("all_gather_object", 1)):
            stack.enter_context(counting(name, place))  # type: ignore[arg-type]
        yield sent


@cache
def share(setting: Setting, rank: int, processes: int) -> Callable[[], float]:
    """The work of a process, made once."""
    return setting.work(rank, processes)


def evaluate_share(rank: int, processes: int, setting: Setting) -> tuple[float, float, int, int]:
    """CPU milliseconds, milliseconds, and bytes of tensors and of objects that this process sends."""
    work = share(setting, rank, processes)
    if processes > 1:
        distributed.barrier()
    with counted_bytes() as sent:
        begin = time.perf_counter()
        cpu = cpu_ms(work)
        wall = (time.perf_counter() - begin) * 1e3
    return cpu, wall, sent["tensors"], sent["objects"]


def processes(repeats: int) -> list[Panel]:
    """The same images on 1, 2 and 4 processes over gloo, in turn."""
    rounds = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        pools = {count: DdpPool(Path(folder) / str(count), world_size=count) for count in PROCESSES if count > 1}
        for pool in pools.values():
            pool.directory.mkdir()
            stack.callback(pool.close)
        for _ in range(repeats + 1):  # the first warms up
            alone = {1: [evaluate_share(0, 1, SHARED)]} if 1 in PROCESSES else {}
            rounds.append(alone | {count: pool.run(evaluate_share, SHARED) for count, pool in pools.items()})
    print("| processes | CPU ms / image, of all | ms / image | KiB sent by each: metrics | values of its images |")
    print("|---|---|---|---|---|")
    time_points, byte_points = [], []
    for count in PROCESSES:
        cpu = [sum(answer[0] for answer in answers[count]) for answers in rounds[1:]]
        wall = [max(answer[1] for answer in answers[count]) for answers in rounds[1:]]
        tensors, objects = (max(answer[column] for answer in rounds[-1][count]) / 1024 for column in (2, 3))
        columns = f"{show(cpu, SHARED.images)} | {show(wall, SHARED.images)} | {tensors:.1f} | {objects:.1f}"
        print(f"| {count} | {columns} |", flush=True)
        middle, least, most = (of(cpu) / SHARED.images for of in (statistics.median, min, max))
        time_points.append(Point(count, middle, least, most))
        byte_points.append(Point(count, tensors + objects))
    return [
        Panel("CPU ms / image, of all processes", "processes", time_points, 0),
        Panel("KiB sent by each process", "processes", byte_points, 0),
    ]


def suites(repeats: int) -> list[Panel]:
    """Suites with many units next to the same suites with few; no curves."""
    pairs = [(suite, units) for suite in SUITES for units in (FEW, MANY)]
    settings = {f"{suite} {units}": replace(USUAL, suite=suite, units=units) for suite, units in pairs}
    results = {name: (times, mebibytes) for name, times, mebibytes in measured(settings, repeats)}
    print(f"| suite | CPU ms / image, {FEW:,} units | {MANY:,} units | ratio | peak, MiB, {FEW:,} units | {MANY:,} |")
    print("|---|---|---|---|---|---|")
    for suite in SUITES:
        (few, few_peak), (many, many_peak) = (results[f"{suite} {units}"] for units in (FEW, MANY))
        ratio = statistics.median(many) / statistics.median(few)
        columns = f"{show(few, USUAL.images)} | {show(many, USUAL.images)} | {ratio:.1f}"
        print(f"| {suite} | {columns} | {few_peak:.0f} | {many_peak:.0f} |", flush=True)
    return []


TABLES = (*AXES, "processes", "suites")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES, help="what to measure")
    parser.add_argument("--repeats", type=int, default=3, help="measurements of each time; the median counts")
    parser.add_argument("--figure", type=Path, help="PNG file of the curves of these tables")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    panels = []
    for name in chosen.tables:
        print()
        of_name = {"processes": processes, "suites": suites}.get(name)
        panels.append(of_name(chosen.repeats) if of_name else along(AXES[name], chosen.repeats))
    if chosen.figure:
        draw([pair for pair in panels if pair]).save(chosen.figure, "PNG")


if __name__ == "__main__":
    main()
