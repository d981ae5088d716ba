"""Prototypes that start as latent patches of random training images."""

from __future__ import annotations

from typing import Any, cast

import torch
from lightning import LightningModule, Trainer

from callbacks.evaluation_mode import evaluation_mode
from callbacks.phases.projection import NearestPatches, source_table
from lightning_modules.contract import InterpretableModel, Projectable

AT_ONCE = 32  # images per forward


@torch.no_grad()
def sample_patches(trainer: Trainer, module: LightningModule) -> dict[str, float]:
    """Action ``sample_patches``: every unit becomes one random cell of one random training image.

    Ours, no published reference. Vectors drawn from a distribution lie far from every patch, or equally near to all of
    them, and the nodes of a tree above such prototypes send all images the same way. Drawn with the seed of the data
    module, so that all processes draw the same.

    Args:
        trainer: its data module gives the images and the seed.
        module: a :class:`~lightning_modules.contract.Projectable`.

    Returns:
        images, how many different ones were drawn.

    Raises:
        TypeError: if the model has no prototypes.
    """
    if not isinstance(module, Projectable):
        raise TypeError(
            f"Expected a model with prototypes for the action 'sample_patches', but got {type(module).__name__}."
        )
    datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
    dataset = datamodule.dataset("projection")
    units = len(cast(InterpretableModel, module).units().active)
    generator = torch.Generator().manual_seed(datamodule.seed)
    rows = torch.randint(len(dataset), (units,), generator=generator).tolist()
    place = torch.rand(units, generator=generator)
    chosen = NearestPatches.empty(units, 0, module.device)
    patches = []
    with evaluation_mode(module):
        for start in range(0, units, AT_ONCE):
            batch = [dataset[row] for row in rows[start : start + AT_ONCE]]
            part = slice(start, start + len(batch))
            latent = module(torch.stack([sample["image"] for sample in batch]).to(module.device)).latent.flatten(2)
            cell = (place[part] * latent.shape[2]).long().to(module.device)
            patches.append(latent[torch.arange(len(batch), device=module.device), :, cell])
            chosen.cell[part] = cell
            chosen.sample_key[part] = torch.stack([sample["sample_key"] for sample in batch]).to(module.device)
            chosen.label[part] = torch.stack([sample["label"] for sample in batch]).to(module.device)
    valid = torch.ones(units, dtype=torch.bool, device=module.device)
    ids = {key: dataset.sample_ids[row] for key, row in zip(chosen.sample_key.tolist(), rows, strict=True)}
    chosen.distance.zero_()
    module.load_patches(torch.cat(patches), valid, source_table(module, chosen, valid, ids))
    return {"images": float(len(set(rows)))}
