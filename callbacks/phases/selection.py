"""Selection of features from statistics over all training images, exact over processes."""

from __future__ import annotations

import torch
from lightning import LightningModule, Trainer

from protometry.callbacks.forward.walk import walk
from protometry.callbacks.phases.ranks import broadcast_buffers
from protometry.callbacks.trainer_parts import datamodule_of, wrong_model
from protometry.lightning_modules.contract import SelectsFeatures


@torch.no_grad()
def select_features(trainer: Trainer, module: LightningModule) -> dict[str, float]:
    """Action ``select_features``: let the model keep some of its features and assign them to classes.

    Training images go through the evaluation transform, each once over all processes; the maps of one batch are held
    at a time. All processes end with the selection of the first.

    Raises:
        TypeError: if the model selects no features.
    """
    if not isinstance(module, SelectsFeatures):
        raise wrong_model(module, "select_features", "that selects features")
    datamodule = datamodule_of(trainer)
    sums = module.feature_sums()
    for batch, outputs in walk(module, datamodule.projection_dataloader(), datamodule.image_size, keep_maps=True):
        assert outputs.all_maps is not None
        sums.update(outputs.all_maps, batch["label"])
    sums.reduce()
    report = module.select(sums)
    broadcast_buffers(module)
    return report
