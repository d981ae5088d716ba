"""Pruning of prototypes that do not represent their class, or that no training image activates, exact over processes.

Sources: Chen et al. 2019 (ProtoPNet), supplement: a prototype is dropped if fewer than 3 of its 6 nearest training
patches carry its class. One patch per image counts. Released code of Nauta et al. 2023 (PIP-Net): after training, a
prototype that no training image shows with a score above 0.1 loses its weights.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, distributed

from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.phases.action_words import listed
from protometry.callbacks.phases.projection import NearestPatches, patches_of_nearest_images
from protometry.callbacks.trainer_parts import datamodule_of, model_of, phase_of, wrong_model
from protometry.lightning_modules.contract import Projectable

NEIGHBOURS = 6
NEEDED = 3
SEEN = 0.1  # the score above which an image shows a unit


@runtime_checkable
class Prunable(Projectable, Protocol):
    """A projectable model whose units can be deactivated."""

    def prune(self, keep: Tensor) -> None:
        """Deactivate the units where ``keep`` (U,) is False."""
        ...


@runtime_checkable
class IgnoresUnits(Protocol):
    """A model whose head can be made to ignore units."""

    def ignore(self, units: Tensor) -> None:
        """Set the weights of the units (U,) bool to 0."""
        ...


def votes(nearest: NearestPatches) -> Tensor:
    """``(U,)`` int64, how many of the nearest images carry the unit's class."""
    return (nearest.own & torch.isfinite(nearest.distance)).sum(dim=0)


@torch.no_grad()
def prune(trainer: Trainer, module: LightningModule) -> dict[str, float]:
    """Action ``prune``: deactivate the prototypes that do not stand for their class.

    A class that would be left without any prototype keeps its best one, and is reported.

    Returns:
        pruned and kept counts, rescued classes.

    Raises:
        TypeError: if the model cannot be pruned.
        ValueError: if it has not been projected.
    """
    if not isinstance(module, Prunable):
        raise wrong_model(module, "prune", "that can be pruned")
    units = model_of(module).units()
    if units.source is None:
        raise ValueError("Expected a projected model for the action 'prune'. Put `project` before it in the plan.")
    images = datamodule_of(trainer).projection_dataloader()
    with evaluation_mode(module):
        nearest = patches_of_nearest_images(module, images, module.device, NEIGHBOURS, own=False)
    keep, rescued = keep_one_per_class((votes(nearest) >= NEEDED) & units.active, units.owner, nearest)
    if rescued:
        rank_zero_info(f"Classes {listed(rescued)} would have lost every prototype, and keep their best one.")
    kept, before = float(keep.sum()), float(units.active.sum())  # counted now: the table shows the model as it changes
    _name("Pruned", units.active & ~keep)
    module.prune(keep)
    return {"kept": kept, "pruned": before - kept, "rescued": float(len(rescued))}


@torch.no_grad()
def ignore_silent(trainer: Trainer, module: LightningModule) -> dict[str, float]:
    """Action ``ignore_silent``: take the weights of units that no training image shows.

    Source: released code of Nauta et al. 2023 (PIP-Net), after the training.

    Returns:
        kept and ignored counts among the units that some class owns.

    Raises:
        TypeError: if the model has no such head.
    """
    if not isinstance(module, IgnoresUnits):
        raise wrong_model(module, "ignore_silent", "that can ignore units")
    model, datamodule = model_of(module), datamodule_of(trainer)
    owned = model.units().owner.any(dim=1)
    largest = torch.zeros(len(owned), device=module.device)
    with evaluation_mode(module):
        for batch in datamodule.projection_dataloader():
            largest = largest.maximum(model(batch["image"].to(module.device)).maps.amax(dim=(0, 2, 3)))
    if distributed.is_initialized():
        distributed.all_reduce(largest, distributed.ReduceOp.MAX)
    silent = owned & (largest <= SEEN)
    _name("Ignored", silent)
    module.ignore(silent)
    return {"kept": float((owned & ~silent).sum()), "ignored": float(silent.sum())}


def prune_units(trainer: Trainer, module: LightningModule) -> dict[str, float]:
    """Action ``prune_units``: deactivate the units that the phase names in ``prune``, or take their weights.

    Returns:
        pruned (those that were active) and kept counts.

    Raises:
        TypeError: if the model can neither deactivate units nor ignore them.
        ValueError: if a unit does not exist, or none would be left.
    """
    if not isinstance(module, Prunable | IgnoresUnits):
        raise wrong_model(module, "prune_units", "whose units can be pruned")
    phase, active = phase_of(trainer, module), model_of(module).units().active
    setting = f"Expected `phases.{phase.name}.prune` to"
    if wrong := [unit for unit in phase.prune if not 0 <= unit < len(active)]:
        raise ValueError(f"{setting} name some of the units 0 to {len(active) - 1}, but got {wrong[:5]}.")
    gone = torch.zeros_like(active)
    gone[list(phase.prune)] = True
    pruned, kept = float((active & gone).sum()), float((active & ~gone).sum())
    if pruned and not kept:
        raise ValueError(f"{setting} leave some of the {int(pruned)} active units, but it names all of them.")
    remove(module, gone)
    return {"pruned": pruned, "kept": kept}


def remove(module: Prunable | IgnoresUnits, units: Tensor) -> None:
    """Deactivate the units (U,) bool, or take their weights."""
    if isinstance(module, Prunable):
        module.prune(~units)
    else:
        module.ignore(units)


def _name(what: str, units: Tensor) -> None:
    if numbers := units.nonzero().flatten().tolist():
        rank_zero_info(f"{what} units: {listed(numbers)}.")


def keep_one_per_class(keep: Tensor, owner: Tensor, nearest: NearestPatches) -> tuple[Tensor, list[int]]:
    """Give every class that lost all its prototypes its best one back.

    Returns:
        The new mask and the classes that were rescued. Best = most of the nearest 6 images of its class, then the
        smallest distance to the nearest image, then the lower index.
    """
    lost = owner.any(dim=0) & ~(owner & keep[:, None]).any(dim=0)
    nearness = 1 / (1 + nearest.distance[0].double())  # in [0, 1], above 0 with any vote: breaks ties between votes
    value = torch.where(owner, (votes(nearest) + nearness)[:, None], -1.0)
    best = value.argmax(dim=0)[lost]
    keep = keep.clone()
    keep[best] = True
    return keep, lost.nonzero().flatten().tolist()
