"""What training costs with many classes and many epochs of the head; printed by ``benchmarks/training.py --tables``."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from unittest import mock

import torch
from lightning import Callback, Trainer
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.timing import in_fresh_process, in_turn, peak, show
from callbacks import PhaseSchedule
from datamodules import SketchBirds
from lightning_modules import ProtoPNet
from lightning_modules.heads.prototypes import PrototypeLayer, nearest_distance
from lightning_modules.losses import cluster, separation

BATCH, CHANNELS, UNITS, CLASSES, CELLS = 16, 128, 10_000, 1_000, 7

Scored = tuple[Tensor, Tensor, Tensor | None]  # scores, nearest distances, maps
Head = Callable[[PrototypeLayer, Tensor], Scored]


def pooled_similarities(layer: PrototypeLayer, latent: Tensor) -> Scored:
    """The maximum of the similarities, as before."""
    maps = layer.similarities(distances := layer.distances(latent))
    return maps.amax(dim=(2, 3)), distances.amin(dim=(2, 3)), maps


def pooled_distances(layer: PrototypeLayer, latent: Tensor) -> Scored:
    """The similarity of the nearest cell, as ``ProtoPNet`` trains."""
    nearest = nearest_distance(distances := layer.distances(latent))
    return layer.similarities(nearest), nearest, layer.similarities(distances.detach())


def authors(layer: PrototypeLayer, latent: Tensor) -> Scored:
    """The formula of the released code: three convolutions and a pool."""
    filters = layer.vectors[..., None, None]
    squares = F.conv2d(latent**2, torch.ones_like(filters)) - 2 * F.conv2d(latent, filters)
    distances = F.relu(squares + (filters**2).sum((1, 2, 3))[:, None, None])
    nearest = -F.max_pool2d(-distances, CELLS).flatten(1)
    return layer.similarities(nearest), nearest, None


HEADS: dict[str, Head] = {
    "pooled similarities (before)": pooled_similarities,
    "pooled distances (ProtoPNet)": pooled_distances,
    "released code": authors,
}


def step_of(head: Head) -> Callable[[], None]:
    """One step of everything behind the backbone, forwards and backwards."""
    torch.manual_seed(0)
    layer, linear = PrototypeLayer(UNITS, CHANNELS), nn.Linear(UNITS, CLASSES, bias=False)
    own = torch.arange(UNITS) // (UNITS // CLASSES) == torch.arange(CLASSES)[:, None]
    latent, labels = torch.rand(BATCH, CHANNELS, CELLS, CELLS).requires_grad_(), torch.arange(BATCH)

    def step() -> None:
        scores, nearest, _ = head(layer, latent)
        terms = F.cross_entropy(linear(scores), labels), cluster(nearest, own, labels), separation(nearest, own, labels)
        (terms[0] + 0.8 * terms[1] - 0.08 * terms[2]).backward()
        layer.zero_grad(set_to_none=False)

    return step


def peak_of(name: str) -> float:
    """MiB that a step with this head holds at most, above what the process holds between steps."""
    return peak(step_of(HEADS[name]))


def head(arguments: argparse.Namespace) -> None:
    """The head of a ProtoPNet with 10,000 prototypes in training."""
    times = in_turn({name: step_of(kind) for name, kind in HEADS.items()}, arguments.repeats)
    print("| head in training, U = 10,000, D = 128, 7 × 7, 16 images | CPU ms / image | peak, MiB |")
    print("|---|---|---|")
    for name, measured in times.items():
        found = in_fresh_process("training_at_scale", "peak_of", name)
        print(f"| {name} | {show(measured, BATCH)} | {found:.0f} |")


@torch.no_grad()
def projection(arguments: argparse.Namespace) -> None:
    """The distances of a projection: of all prototypes, and of those of the class of each image."""
    torch.manual_seed(0)
    layer, latent = PrototypeLayer(UNITS, CHANNELS).eval(), torch.rand(32, CHANNELS, CELLS, CELLS)
    owner = torch.arange(UNITS) // (UNITS // CLASSES) == torch.arange(32)[:, None]
    works = {
        "all": lambda: layer.distances(latent, exact=True).flatten(2).min(dim=2),
        "own": lambda: layer.distances(latent, exact=True, units=owner.byte().topk(10).indices).flatten(2).min(dim=2),
    }
    print("| distances of a projection, 1,000 classes × 10 | CPU ms / image |")
    print("|---|---|")
    for name, measured in in_turn(works, arguments.repeats).items():
        print(f"| {name} | {show(measured, 32)} |")


class _Epochs(Callback):
    """CPU milliseconds of every epoch."""

    def __init__(self) -> None:
        self.begin, self.ends = time.process_time(), list[float]()

    def on_train_epoch_end(self, *args: object) -> None:
        self.ends.append(time.process_time())

    def on_train_start(self, *args: object) -> None:
        self.begin = time.process_time()


def head_phase(arguments: argparse.Namespace) -> None:
    """A phase of the head alone, 20 epochs as in the preset ``original``, on images that do not change."""
    measured: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(arguments.repeats):
        for kept, times in measured.items():
            torch.manual_seed(0)
            changes = dict.fromkeys(("warm", "joint", "joint2", "last2")) | {"last": {"on_enter": []}}
            model = ProtoPNet(num_classes=20, image_size=(64, 64), preset="original", phases=changes)
            clock, options = _Epochs(), {"logger": False, "enable_checkpointing": False, "limit_val_batches": 0}
            quiet = {
                "enable_progress_bar": False,
                "enable_model_summary": False,
                "accelerator": "cpu",
            }
            with mock.patch.object(SketchBirds, "fixed_training_images", kept):
                trainer = Trainer(max_epochs=-1, callbacks=[PhaseSchedule(), clock], **options, **quiet)
                trainer.fit(model, datamodule=SketchBirds("small", image_size=64, train_size=256))
            times.append((clock.ends[-1] - clock.begin) * 1e3)
    print("| a phase of the head, 20 epochs, sketch backbone, 64 px | CPU ms / image and epoch |")
    print("|---|---|")
    for kept, times in measured.items():
        print(f"| scores {'kept' if kept else 'computed in every epoch (before)'} | {show(times, 20 * 256)} |")
    print(f"\n{statistics.median(measured[False]) / statistics.median(measured[True]):.1f} times as fast")


TABLES = {"head": head, "projection": projection, "head_phase": head_phase}
