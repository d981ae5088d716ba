"""The common part of models whose prototypes belong to classes: head, losses, projection, pruning and schedules.

Source: Chen et al. 2019 (ProtoPNet). A model adds its latent, its :class:`PrototypeLayer` and what it is published for.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protometry.lightning_modules.bases.interpretable import InterpretableModule, LossTerm
from protometry.lightning_modules.bases.losses import cluster, off_class_l1, separation
from protometry.lightning_modules.contract import UnitTable, owned_by_targets
from protometry.lightning_modules.heads.linear_head import LinearHead
from protometry.lightning_modules.heads.prototypes import ComparesPatches
from protometry.lightning_modules.phases import FIT_HEAD, OptimizerSpec, Phase, PhasePlan, one_cycle

HEAD_LOSSES = {"cross_entropy": 1.0, "off_class_l1": 1e-4}


def from_scratch(losses: dict[str, float], between: str = "addon", rate: float = 6e-3) -> PhasePlan:
    """The schedule for a backbone from scratch: one AdamW and one OneCycle throughout, and a solved last layer.

    Prototypes that start as random vectors lie far from every patch and learn slowly: the first projection, after one
    epoch, puts them among the patches; the second, before the rates fall, makes the last one cost little. ``between``
    names the parameter group between backbone and prototypes, ``rate`` is its own.
    """
    rates = {"backbone": 6e-3, between: rate, "prototypes": 6e-3}
    adam = OptimizerSpec("AdamW", {"weight_decay": 0.0}, "sketch")
    lengths = {"warm": 1, "joint": 6, "settle": 4}
    phases = [
        one_cycle(name, epochs, rates, losses, adam, on_enter=() if name == "warm" else ("project",))
        for name, epochs in lengths.items()
    ]
    return PhasePlan((*phases, solved_last(1e-2)))


def fine_tuned(losses: dict[str, float], between: str = "addon", rate: float = 1e-3) -> PhasePlan:
    """The schedule for a pretrained backbone and few images: frozen BatchNorm, one Adam and one OneCycle."""
    rates, adam = {"backbone": 1e-4, between: rate, "prototypes": 1e-3}, OptimizerSpec("Adam", key="joint")
    joint, settle = (
        one_cycle(name, epochs, rates, losses, adam, bn="eval", on_enter=("project",))
        for name, epochs in (("joint", 14), ("settle", 8))
    )
    warm = Phase("warm", 20, {between: 3 * rate, "prototypes": 3e-3}, losses, bn="eval", on_enter=("project",))
    return PhasePlan((warm, joint, settle, solved_last(3e-3)))


def solved_last(rate: float) -> Phase:
    """One epoch that measures the solution; ``rate`` applies if the head is trained instead."""
    return Phase("last", 1, {"head": rate}, HEAD_LOSSES, bn="eval", on_enter=("project", FIT_HEAD), selectable=True)


class ClassPrototypes(ComparesPatches, LinearHead, InterpretableModule):
    """Base of models whose every prototype is owned by one class and read by a linear head without bias."""

    groups: ClassVar[dict[str, str]] = {
        "backbone": "backbone",
        "addon": "addon",
        "prototypes": "prototypes",
        "head": "linear",
    }

    owner: Tensor

    def own_prototypes(self, per_class: int, own_class_init: float, off_class_init: float | None) -> None:
        """Add ``owner`` and the head, once the latent and the prototypes are there.

        Args:
            per_class: prototypes owned by each class, in the order of classes.
            own_class_init: initial weight between a class and its own prototypes.
            off_class_init: initial weight between a class and a prototype of another class; null if a class reads only
                its own prototypes, which fixes these weights at 0.
        """
        classes = torch.arange(self.num_classes).repeat_interleave(per_class)
        self.register_buffer("owner", classes[:, None] == torch.arange(self.num_classes))
        self.linear = nn.Linear(len(classes), self.num_classes, bias=False)
        self.own_only = off_class_init is None
        with torch.no_grad():
            self.linear.weight.copy_(torch.where(self.owner.T, own_class_init, off_class_init or 0.0))

    def head(self, scores: Tensor) -> Tensor:
        """Logits ``(B, K)`` of scores ``(B, U)``."""
        weight = self.linear.weight
        return F.linear(scores, weight * self.owner.T if self.own_only else weight)  # a weight cut off has no gradient

    def units(self) -> UnitTable:
        """Prototypes, owned by their class."""
        return UnitTable(
            kind="prototype",
            active=self.prototypes.active.clone(),
            owner=self.owner & self.prototypes.active[:, None],
            pool="max",
            weight=self.linear.weight,
            vectors=self.prototypes.embedded(),
            source=self.prototypes.source(),
            comparison="projection" if self.prototypes.by_direction else "distance",
        )

    def loss_terms(self) -> dict[str, LossTerm]:
        """Adds ``cluster``, ``separation`` (both among active prototypes) and ``off_class_l1``."""
        own, active = self.owner.T, self.prototypes.active
        return super().loss_terms() | {
            "cluster": lambda output, batch: cluster(output.extras["distance"], own & active, self.targets(batch)),
            "separation": lambda output, batch: separation(
                output.extras["distance"], own | ~active, self.targets(batch)
            ),
            "off_class_l1": lambda output, batch: off_class_l1(self.linear.weight, self.owner),
        }

    # -- last layer --------------------------------------------------------------------------------------------------
    def readable(self) -> Tensor:
        """``(K, U)`` bool, weights that may differ from 0."""
        return super().readable() & (self.owner.T | (not self.own_only))

    @torch.no_grad()
    def load_weights(self, weight: Tensor) -> None:
        """Set weights ``(K, U)``; prototypes without weight become inactive."""
        self.linear.weight.copy_(weight)
        self.prune((self.linear.weight != 0).any(dim=0))

    # -- projection and pruning --------------------------------------------------------------------------------------
    def allowed(self, targets: Tensor) -> Tensor:
        """``(B, U)`` bool: the prototype belongs to the class (``(B,)`` int64) or a label (``(B, K)`` bool)."""
        return owned_by_targets(self.owner, targets)

    @torch.no_grad()
    def prune(self, keep: Tensor) -> None:
        """Deactivate the prototypes that are not in ``keep`` (U,); shapes stay."""
        self.prototypes.active.logical_and_(keep)
        self.linear.weight.masked_fill_(~self.prototypes.active, 0.0)
