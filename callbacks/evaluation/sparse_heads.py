"""Linear heads with few weights, solved on the scores of the training images."""

from __future__ import annotations

from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor

from protometry.callbacks.forward.walk import gather_outputs, walk
from protometry.lightning_modules.heads.sparse_path import heads_with_weights
from protometry.metrics.concepts.effective_concepts import SIZES
from protometry.metrics.facts import Facts


@torch.no_grad()
def solve_sparse_heads(
    facts: Facts, module: LightningModule, datamodule: Any, memory_budget: float | None
) -> tuple[Tensor, Tensor]:
    """Weights ``(T, K, U)`` and biases ``(T, K)`` of the heads with ``SIZES`` weights per class.

    Every process holds all scores, 4 bytes per image and unit, and solves the same problem.
    """
    batches = walk(module, datamodule.projection_dataloader(), datamodule.image_size, memory_budget)
    _, scores, labels = gather_outputs(
        batches, lambda batch, seen: (seen.scores.float(), batch.get("labels", batch["label"]))
    )
    active = facts.active
    weight, bias = heads_with_weights(
        scores.to(active.device)[:, active], labels.to(active.device), facts.num_classes, SIZES
    )
    whole = weight.new_zeros(*weight.shape[:2], len(active))
    whole[:, :, active] = weight
    return whole, bias
