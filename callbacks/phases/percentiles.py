"""The values of corrected concepts: percentiles of their logits over the training images, exact over processes."""

from __future__ import annotations

import numpy as np
import torch
from lightning import LightningModule, Trainer

from protometry.callbacks.forward.walk import walk
from protometry.callbacks.trainer_parts import datamodule_of
from protometry.command_line.processes import gathered
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
        raise TypeError(
            "Expected a model whose concepts can be corrected for the action 'concept_percentiles', but got "
            f"{type(module).__name__}."
        )
    datamodule = datamodule_of(trainer)
    batches = walk(module, datamodule.projection_dataloader(), datamodule.image_size, keep_maps=True)
    own = [outputs.all_maps.mean(dim=(2, 3)).cpu().numpy() for _, outputs in batches if outputs.all_maps is not None]
    logits = np.concatenate([part for share in gathered(own) for part in share])
    low, high = (torch.from_numpy(row) for row in np.percentile(logits, (LOW, HIGH), axis=0))
    module.load_percentiles(low, high)
    return {"images": float(len(logits)), "least_distance": float((high - low).min())}
