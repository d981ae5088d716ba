"""The evaluation engine over a data module, in process and without a trainer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from lightning.fabric.utilities import move_data_to_device

from protometry.callbacks import Evaluation, Interpretability
from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.dataset import ExactSampler, ImageLoader
from protometry.lightning_modules import InterpretableModule


class Run:
    """What the callback asks of a trainer."""

    def __init__(self, datamodule: ImageDataModule) -> None:
        self.datamodule, self.loggers, self.current_epoch = datamodule, [], 0


def run_engine(
    engine: Interpretability,
    model: InterpretableModule,
    datamodule: ImageDataModule,
    batch_size: int = 8,
    workers: int = 0,
    order: Sequence[int] | None = None,
    rank: int = 0,
    world_size: int = 1,
    batches: Iterable[Any] | None = None,
) -> Evaluation:
    """One pass over the test split, or over batches made of it before.

    ``order`` or (rank, world size) choose the samples of this process.
    """
    run: Any = Run(datamodule)
    model.log = _nowhere
    engine.setup(run, model, "test")
    dataset = datamodule.test_dataloader().dataset
    sampler = ExactSampler(dataset, rank, world_size) if order is None else order
    loader = ImageLoader(dataset, batch_size=batch_size, sampler=sampler, num_workers=workers)
    with torch.inference_mode():
        engine.on_test_start(run, model)
        for index, batch in enumerate(batches or loader):
            engine.on_test_batch_end(run, model, None, move_data_to_device(batch, model.device), index)
        engine.on_test_epoch_end(run, model)
    return engine.evaluation


def _nowhere(*args: Any, **kwargs: Any) -> None:
    """Where a run without a trainer logs to; a function of its own, so that its model can be sent to processes."""


def values(evaluation: Evaluation) -> dict[str, tuple[float, float, float, int]]:
    """Value, interval and n of every key."""
    return {key: (entry["value"], *entry["ci95"], entry["n"]) for key, entry in evaluation.metrics.items()}
