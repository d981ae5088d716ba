"""Directions of annotated concepts in the latent space of a model, whatever its units are."""

from __future__ import annotations

from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor

from protometry.callbacks.phases.concepts import embed_training_images
from protometry.lightning_modules.heads.concept_bank import Examples, fit_concept_bank


@torch.no_grad()
def concept_directions(module: LightningModule, datamodule: Any, memory_budget: float | None, seed: int) -> Tensor:
    """``(2, L, D)`` float32, a vector of each concept and one of as many random images; NaN where there is none.

    Each is fitted as in a post-hoc bottleneck, to the means over cells of the latents of training images. Every process
    holds these, 4 bytes per image and channel, and fits the same vectors.
    """
    embeddings, concepts, _ = embed_training_images(module, datamodule, memory_budget)
    order = torch.randperm(len(concepts), generator=torch.Generator().manual_seed(seed))
    banks = [fit_concept_bank(embeddings, labels, Examples(seed=seed)) for labels in (concepts, concepts[order])]
    vectors = [bank.vectors.masked_fill(~bank.found[:, None], torch.nan) for bank in banks]
    return torch.stack(vectors).to(module.device)
