"""The values of corrected concepts: percentiles of their logits over the training images, exact over processes."""

from __future__ import annotations

from typing import cast

import numpy as np
import torch
from lightning import LightningModule, Trainer
from torch import Tensor

from protometry.callbacks.forward.walk import gather_outputs, walk
from protometry.callbacks.trainer_parts import datamodule_of, wrong_model
from protometry.lightning_modules.contract import Intervenable

LOW, HIGH = 5, 95


@torch.no_grad()
def concept_percentiles(trainer: Trainer, module: LightningModule) -> dict[str, float]:
    """Action ``concept_percentiles``: store the 5th and the 95th percentile of every concept's training logits.

    Source: Koh et al. 2020, section 3 (test-time intervention). Training images go through the evaluation transform,
    each once over all processes; between two images the percentile is interpolated. All logits are held at once, 4
    bytes per image and concept.

    Returns:
        images, and the smallest distance between the two percentiles of a concept.

    Raises:
        TypeError: if the model has no concepts that can be corrected.
    """
    if not isinstance(module, Intervenable):
        raise wrong_model(module, "concept_percentiles", "whose concepts can be corrected")
    datamodule = datamodule_of(trainer)
    walked = walk(module, datamodule.projection_dataloader(), datamodule.image_size, keep_maps=True)
    _, logits = gather_outputs(walked, lambda _, outputs: (cast(Tensor, outputs.all_maps).mean(dim=(2, 3)),))
    low, high = (torch.from_numpy(row) for row in np.percentile(logits, (LOW, HIGH), axis=0))
    module.load_percentiles(low, high)
    return {"images": float(len(logits)), "least_distance": float((high - low).min())}
