"""Pruning of prototypes that do not represent their class, or that no training image activates, exact over processes.

Sources: Chen et al. 2019 (ProtoPNet), supplement: a prototype is dropped if fewer than 3 of its 6 nearest training
patches carry its class. One patch per image counts. Released code of Nauta et al. 2023 (PIP-Net): after training, a
prototype that no training image shows with a score above 0.1 loses its weights.
"""

from __future__ import annotations

from typing import Any, Protocol, cast, runtime_checkable

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, distributed

from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.phases.projection import patch_distances
from protometry.lightning_modules.contract import InterpretableModel, Projectable

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
class Weighted(Protocol):
    """A model whose head can be made to ignore units."""

    def ignore(self, units: Tensor) -> None:
        """Set the weights of the units (U,) bool to 0."""
        ...


class Neighbours:
    """The nearest images of every unit, merged by unique sample key.

    Args:
        units: U.
        device: where the lists live.
    """

    def __init__(self, units: int, device: torch.device) -> None:
        self.distance = torch.full((units, NEIGHBOURS), torch.inf, dtype=torch.float64, device=device)
        self.sample_key = torch.full((units, NEIGHBOURS), -1, device=device)
        self.own = torch.zeros((units, NEIGHBOURS), dtype=torch.bool, device=device)

    def merge(self, distance: Tensor, sample_key: Tensor, own: Tensor) -> None:
        """Take in candidates, each ``(U, n)``; an image counts once, ties go to the smaller key."""
        distance = torch.cat([self.distance, distance.double()], dim=1)
        sample_key = torch.cat([self.sample_key, sample_key], dim=1)
        own = torch.cat([self.own, own], dim=1)
        by_key = sample_key.argsort(dim=1, stable=True)
        distance, sample_key, own = (x.gather(1, by_key) for x in (distance, sample_key, own))
        repeated = torch.zeros_like(own)
        repeated[:, 1:] = sample_key[:, 1:] == sample_key[:, :-1]
        distance = distance.masked_fill(repeated, torch.inf)
        nearest = distance.argsort(dim=1, stable=True)[:, :NEIGHBOURS]
        self.distance, self.sample_key, self.own = (x.gather(1, nearest) for x in (distance, sample_key, own))

    def reduce(self) -> None:
        """Merge the lists of all processes."""
        if not distributed.is_initialized():
            return
        own = self.own.to(torch.int64)
        gathered = []
        for tensor in (self.distance, self.sample_key, own):
            parts = [torch.empty_like(tensor) for _ in range(distributed.get_world_size())]
            distributed.all_gather(parts, tensor.contiguous())
            gathered.append(torch.cat(parts, dim=1))
        self.distance = torch.full_like(self.distance, torch.inf)
        self.sample_key = torch.full_like(self.sample_key, -1)
        self.merge(gathered[0], gathered[1], gathered[2].bool())

    def keep(self) -> Tensor:
        """``(U,)`` bool: at least 3 of the nearest 6 images carry the unit's class."""
        return (self.own & torch.isfinite(self.distance)).sum(dim=1) >= NEEDED


@torch.no_grad()
def prune(trainer: Trainer, module: LightningModule) -> dict[str, float]:
    """Action ``prune``: deactivate the prototypes that do not stand for their class.

    A class that would be left without any prototype keeps its best one, and is reported.

    Args:
        trainer: its data module gives the training images.
        module: a projected :class:`Prunable`.

    Returns:
        pruned and kept counts, rescued classes.

    Raises:
        TypeError: if the model cannot be pruned.
        ValueError: if it has not been projected.
    """
    if not isinstance(module, Prunable):
        raise TypeError(f"Expected a model that can be pruned for the action 'prune', but got {type(module).__name__}.")
    units = cast(InterpretableModel, module).units()
    if units.source is None:
        raise ValueError("Expected a projected model for the action 'prune'. Put `project` before it in the plan.")
    datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
    neighbours = Neighbours(len(units.active), module.device)
    with evaluation_mode(module):
        for seen in patch_distances(module, datamodule.projection_dataloader(), module.device):
            neighbours.merge(seen.near.T, seen.keys.expand(seen.near.shape[1], -1), seen.allowed.T)
    neighbours.reduce()
    keep, rescued = keep_one_per_class(neighbours.keep() & units.active, units.owner, neighbours)
    if rescued:
        rank_zero_info(f"Classes that would have lost every prototype keep their best one: {rescued}")
    kept, before = float(keep.sum()), float(units.active.sum())  # counted now: the table shows the model as it changes
    module.prune(keep)
    return {"kept": kept, "pruned": before - kept, "rescued": float(len(rescued))}


@torch.no_grad()
def ignore_silent(trainer: Trainer, module: LightningModule) -> dict[str, float]:
    """Action ``ignore_silent``: take the weights of units that no training image shows.

    Source: released code of Nauta et al. 2023 (PIP-Net), after the training.

    Args:
        trainer: its data module gives the training images.
        module: a :class:`Weighted` model.

    Returns:
        kept and ignored counts among the units that some class owns.

    Raises:
        TypeError: if the model has no such head.
    """
    if not isinstance(module, Weighted):
        raise TypeError(
            f"Expected a model that can ignore units for the action 'ignore_silent', but got {type(module).__name__}."
        )
    model, datamodule = cast(InterpretableModel, module), cast(Any, trainer).datamodule
    owned = model.units().owner.any(dim=1)
    largest = torch.zeros(len(owned), device=module.device)
    with evaluation_mode(module):
        for batch in datamodule.projection_dataloader():
            largest = largest.maximum(model(batch["image"].to(module.device)).maps.amax(dim=(0, 2, 3)))
    if distributed.is_initialized():
        distributed.all_reduce(largest, distributed.ReduceOp.MAX)
    silent = owned & (largest <= SEEN)
    module.ignore(silent)
    return {"kept": float((owned & ~silent).sum()), "ignored": float(silent.sum())}


def keep_one_per_class(keep: Tensor, owner: Tensor, neighbours: Neighbours) -> tuple[Tensor, list[int]]:
    """Give every class that lost all its prototypes its best one back.

    Args:
        keep: ``(U,)`` bool.
        owner: ``(U, K)`` bool, before pruning.
        neighbours: nearest images.

    Returns:
        The new mask and the classes that were rescued. Best = most of the nearest 6 images of its class, then the
        smallest distance to the nearest image, then the lower index.
    """
    lost = owner.any(dim=0) & ~(owner & keep[:, None]).any(dim=0)
    votes = (neighbours.own & torch.isfinite(neighbours.distance)).sum(dim=1).double()
    nearness = 1 / (1 + neighbours.distance[:, 0])  # in [0, 1], above 0 with any vote: breaks ties between votes
    value = torch.where(owner, (votes + nearness)[:, None], -1.0)
    best = value.argmax(dim=0)[lost]
    keep = keep.clone()
    keep[best] = True
    return keep, lost.nonzero().flatten().tolist()
