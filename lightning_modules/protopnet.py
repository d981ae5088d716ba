"""ProtoPNet (Chen et al. 2019, *This Looks Like That*): class-owned prototypes, log-similarity, linear head.

Architecture, losses and phases top to bottom. Deviations from the released code: the cluster and separation costs are
exact minima, BatchNorm keeps its running statistics in phases that train the head only, and a prototype without a patch
keeps its vector. The pruned variant is a phase plan with a ``prune`` phase appended, not another class.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protometry.lightning_modules.contract import ModelOutput, UnitTable, owned_by_targets
from protometry.lightning_modules.heads.addon import AddonKind, addon_layers
from protometry.lightning_modules.heads.linear_head import LinearHead
from protometry.lightning_modules.heads.prototypes import ComparesPatches, PrototypeLayer, Similarity, nearest_distance
from protometry.lightning_modules.interpretable import InterpretableModule, LossTerm
from protometry.lightning_modules.losses import cluster, multilabel_margin, off_class_l1, separation
from protometry.lightning_modules.phases import (
    FIT_HEAD,
    HeadSpec,
    OptimizerSpec,
    Phase,
    PhasePlan,
    SchedulerSpec,
    one_cycle,
)
from protometry.metrics.primitives.checks import check_at_least

LOSSES = {"cross_entropy": 1.0, "cluster": 0.8, "separation": -0.08}
COSINE_LOSSES = {"cross_entropy": 1.0, "cluster": 1.0, "separation": -0.1}
HEAD_LOSSES = {"cross_entropy": 1.0, "off_class_l1": 1e-4}


def _joint(name: str, epochs: int, scheduler: SchedulerSpec) -> Phase:
    """A joint phase with the original rates; all of a plan share one optimiser and one step-wise decay."""
    rates = {"backbone": 1e-4, "addon": 3e-3, "prototypes": 3e-3}
    return Phase(
        name,
        epochs,
        rates,
        LOSSES,
        weight_decay={"backbone": 1e-3, "addon": 1e-3},
        optimizer=OptimizerSpec("Adam", key="joint"),
        scheduler=scheduler,
    )


def _last(name: str) -> Phase:
    return Phase(name, 20, {"head": 1e-4}, HEAD_LOSSES, bn="eval", on_enter=("project",), selectable=True)


def _sketch(name: str, epochs: int, **changes: Any) -> Phase:
    """A phase of the from-scratch schedule: one AdamW and one OneCycle throughout.

    Prototypes that start as random vectors lie far from every patch and learn slowly: the first projection, after one
    epoch, puts them among the patches; the second, before the rates fall, makes the last one cost little.
    """
    rates = dict.fromkeys(("backbone", "addon", "prototypes"), 6e-3)
    return one_cycle(name, epochs, rates, LOSSES, OptimizerSpec("AdamW", {"weight_decay": 0.0}, "sketch"), **changes)


def _pretrained(name: str, epochs: int) -> Phase:
    """A phase that fine-tunes a pretrained backbone on few images: frozen BatchNorm, one Adam and one OneCycle."""
    rates, adam = {"backbone": 1e-4, "addon": 1e-3, "prototypes": 1e-3}, OptimizerSpec("Adam", key="joint")
    return one_cycle(name, epochs, rates, COSINE_LOSSES, adam, bn="eval", on_enter=("project",))


def _solved(rate: float, penalty: float) -> Phase:
    """One epoch that measures the solution; ``rate`` applies if the head is trained instead."""
    actions, head = ("project", FIT_HEAD), HeadSpec(penalty)
    return Phase("last", 1, {"head": rate}, HEAD_LOSSES, bn="eval", on_enter=actions, selectable=True, head=head)


_DECAY = SchedulerSpec("MultiStepLR", {"milestones": [4, 9, 14], "gamma": 0.1})  # stepped before each epoch
_EVERY_TENTH = SchedulerSpec("StepLR", {"step_size": 10, "gamma": 0.1})
_WARM = Phase("warm", 5, {"addon": 3e-3, "prototypes": 3e-3}, LOSSES, weight_decay={"addon": 1e-3}, bn="eval")


class ProtoPNet(ComparesPatches, LinearHead, InterpretableModule):
    """Prototypical part network.

    Source: Chen et al. 2019. Presets: ``original`` (two cycles of the published schedule), ``quanproto`` (Schlinge et
    al. 2025, CUB; set ``off_class_init: 0``, ``epsilon: 1e-14``, ``prototype_range: [0.4, 1]`` and, with single labels,
    ``class_weights: true``, as the files in ``configs/model/quanproto`` do), ``funnybirds`` (Opłatek et al. 2024: rates
    fall every tenth epoch, one projection after 25), ``sketch`` (ours, for the from-scratch backbone) and
    ``pretrained`` (ours, for a pretrained backbone, cosine similarity and few images).

    The last two solve the last layer, the authors' three train it as published. docs/models/protopnet.md has the effect
    of the solution, which was not measured with the authors' schedules.

    Args:
        prototypes_per_class: prototypes owned by each class.
        prototype_channels: D, channels of the add-on and of the prototypes.
        addon: ``sigmoid`` is the original (1×1 convolution, ReLU, 1×1 convolution, sigmoid); ``linear`` is one 1×1
            convolution, which suits ``cosine`` and few training images.
        similarity: ``l2_log`` or ``cosine``.
        epsilon: ε of ``l2_log``.
        own_class_init: initial head weight between a class and its own prototypes.
        off_class_init: initial head weight between a class and a prototype of another class; null if a class reads only
            its own prototypes, which fixes these weights at 0.
        prototype_range: with ``l2_log``, prototypes start uniformly between these two numbers.

    Example:
        >>> model = ProtoPNet(num_classes=4, image_size=(32, 32), prototypes_per_class=2)
        >>> output = model(torch.rand(3, 3, 32, 32))
        >>> output.logits.shape, output.scores.shape, output.maps.shape
        (torch.Size([3, 4]), torch.Size([3, 8]), torch.Size([3, 8, 4, 4]))
    """

    presets: ClassVar[dict[str, PhasePlan]] = {
        "original": PhasePlan(
            (_WARM, _joint("joint", 6, _DECAY), _last("last"), _joint("joint2", 10, _DECAY), _last("last2"))
        ),
        "funnybirds": PhasePlan((_WARM, _joint("joint", 20, _EVERY_TENTH), _last("last"))),
        "quanproto": PhasePlan(
            (
                Phase("warm", 5, {"addon": 2.7e-5, "prototypes": 2.7e-5}, LOSSES, bn="eval"),
                Phase(
                    "joint",
                    100,
                    {"backbone": 4.7e-5, "addon": 4.9e-5, "prototypes": 2.3e-3},
                    LOSSES,
                    scheduler=SchedulerSpec("StepLR", {"step_size": 35, "gamma": 0.5}),
                ),
                Phase(
                    "last",
                    10,
                    {"head": 1e-4},
                    {"cross_entropy": 1.0, "off_class_l1": 1e-3},
                    bn="eval",
                    on_enter=("project",),
                    selectable=True,
                ),
            )
        ),
        "pretrained": PhasePlan(
            (
                Phase("warm", 20, {"addon": 3e-3, "prototypes": 3e-3}, COSINE_LOSSES, bn="eval", on_enter=("project",)),
                _pretrained("joint", 14),
                _pretrained("settle", 8),
                _solved(3e-3, penalty=3e-4),
            )
        ),
        "sketch": PhasePlan(
            (
                _sketch("warm", 1),
                _sketch("joint", 6, on_enter=("project",)),
                _sketch("settle", 4, on_enter=("project",)),
                _solved(1e-2, penalty=1e-3),
            )
        ),
    }

    groups: ClassVar[dict[str, str]] = {
        "backbone": "backbone",
        "addon": "addon",
        "prototypes": "prototypes",
        "head": "linear",
    }

    def __init__(  # noqa: PLR0913 - a command line sets these one by one
        self,
        prototypes_per_class: int = 10,
        prototype_channels: int = 128,
        addon: AddonKind = "sigmoid",
        similarity: Similarity = "l2_log",
        epsilon: float = 1e-4,
        own_class_init: float = 1.0,
        off_class_init: float | None = -0.5,
        prototype_range: tuple[float, float] = (0.0, 1.0),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        low, high = prototype_range
        if not -math.inf < low < high < math.inf:
            raise ValueError(
                f"Expected argument `prototype_range` to be two finite numbers, the lower first, but got {low}, {high}."
            )
        for name, value in (("prototypes_per_class", prototypes_per_class), ("prototype_channels", prototype_channels)):
            check_at_least(name, value, 1)
        self.addon = addon_layers(self.backbone.out_channels, prototype_channels, 1 if addon == "linear" else 2, addon)
        units = prototypes_per_class * self.num_classes
        self.prototypes = PrototypeLayer(units, prototype_channels, similarity, epsilon)
        if similarity == "l2_log":
            self.prototypes.vectors.data.mul_(high - low).add_(low)
        classes = torch.arange(self.num_classes).repeat_interleave(prototypes_per_class)
        self.owner: Tensor
        self.register_buffer("owner", classes[:, None] == torch.arange(self.num_classes))
        self.linear = nn.Linear(units, self.num_classes, bias=False)
        self.own_only = off_class_init is None
        with torch.no_grad():
            self.linear.weight.copy_(torch.where(self.owner.T, own_class_init, off_class_init or 0.0))

    def forward(self, images: Tensor) -> ModelOutput:
        """Backbone, add-on, similarity of every cell to every prototype, best cell, linear head.

        In training, scores are the similarities of the nearest cells, whose distances are in ``extras``, and maps have
        no gradient: the gradient of the logarithm would need twice the memory and time of the rest of the head.
        """
        latent = self.embed(images)
        if not self.training:
            maps = self.prototypes.maps(latent)
            scores = self.pool(maps) * self.prototypes.active
            return ModelOutput(self.head(scores), scores, maps, latent)
        distances = self.prototypes.distances(latent)
        nearest = nearest_distance(distances)
        maps = self.prototypes.similarities(distances.detach())
        scores = self.prototypes.similarities(nearest) * self.prototypes.active
        return ModelOutput(self.head(scores), scores, maps, latent, {"distance": nearest})

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
            vectors=self.prototypes.vectors,
            source=self.prototypes.source(),
            comparison="projection" if self.prototypes.similarity == "cosine" else "distance",
        )

    def loss_terms(self) -> dict[str, LossTerm]:
        """Adds ``cluster``, ``separation`` (both among active prototypes) and ``off_class_l1``.

        For multilabel data, as the released code of Schlinge et al. 2025 has them: ``multilabel_margin_sum`` (over the
        images of a batch, not their mean) and ``absent_separation`` (mean over the labels an image does not have of
        the distance to their nearest prototype).
        """
        own, active = self.owner.T, self.prototypes.active
        several: dict[str, LossTerm] = {
            "multilabel_margin_sum": lambda output, batch: (
                len(batch["labels"]) * multilabel_margin(output.logits, batch["labels"])
            ),
            "absent_separation": lambda output, batch: cluster(
                output.extras["distance"], own & active, ~batch["labels"]
            ),
        }
        return (super().loss_terms() | (several if self.task == "multilabel" else {})) | {
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
