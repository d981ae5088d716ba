"""A control for concept metrics: training in which every class has the concepts of another one.

``python train.py fit --config ... --trainer.callbacks+=benchmarks.permuted_concepts.PermutedConcepts``
"""

from __future__ import annotations

from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor


class PermutedConcepts(Callback):
    """Replaces the concepts of training images by another class's row of the concept table.

    Evaluation sees the true concepts: a metric that does not fall with them does not measure what concepts mean.

    Args:
        seed: of the derangement of the classes.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Replace the concepts of a batch in place."""
        table: Tensor = trainer.datamodule.tables.class_concepts_binary  # type: ignore[attr-defined]
        labels = batch["label"]
        batch["concepts"].copy_(table.to(labels.device)[derangement(len(table), self.seed).to(labels.device)[labels]])


def derangement(count: int, seed: int) -> Tensor:
    """A permutation ``(count,)`` int64 in which nothing stays in its place.

    Example:
        >>> bool((derangement(20, seed=0) == torch.arange(20)).any())
        False
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    permutation = torch.empty_like(order)
    permutation[order] = order.roll(1)  # one cycle through all
    return permutation
