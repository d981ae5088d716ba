"""Linear heads with few weights, solved on the scores of the training images."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor

from protometry.callbacks.forward.walk import gather_outputs, walk
from protometry.lightning_modules.heads.sparse_path import heads_with_weights
from protometry.metrics.concepts.effective_concepts import SIZES
from protometry.metrics.facts import Facts

Heads = tuple[Tensor, Tensor]


@torch.no_grad()
def solve_sparse_heads(
    facts: Facts, module: LightningModule, datamodule: Any, memory_budget: float | None, fields: Collection[str]
) -> dict[str, Heads]:
    """Weights ``(T, K, U)`` and biases ``(T, K)`` of the heads with ``SIZES`` weights per class.

    Those of ``sparse_logits`` read all active units, those of ``concept_head_logits`` the units that stand for a
    concept; they are solved once where these are the same. Every process holds all scores, 4 bytes per image and unit,
    and solves the same problem.

    Args:
        facts: of the model and the data.
        module: the model.
        datamodule: of the data that it was trained on.
        memory_budget: of :func:`~protometry.callbacks.forward.walk.walk`.
        fields: the names of those that are wanted.
    """
    batches = walk(module, datamodule.projection_dataloader(), datamodule.image_size, memory_budget)
    _, scores, labels = gather_outputs(
        batches, lambda batch, seen: (seen.scores.float(), batch.get("labels", batch["label"]))
    )
    scores, labels = scores.to(facts.active.device), labels.to(facts.active.device)
    read = {"sparse_logits": facts.active, "concept_head_logits": facts.concept_units}
    heads: dict[str, Heads] = {}
    for field, units in read.items():
        if field in fields:
            same = next((each for name, each in heads.items() if torch.equal(read[name], units)), None)
            heads[field] = same or _solved(scores, labels, units, facts.num_classes)
    return heads


def _solved(scores: Tensor, labels: Tensor, units: Tensor, num_classes: int) -> Heads:
    """Heads that read the units ``(U,)`` bool."""
    weight, bias = heads_with_weights(scores[:, units], labels, num_classes, SIZES)
    whole = weight.new_zeros(*weight.shape[:2], len(units))
    whole[:, :, units] = weight
    return whole, bias
