"""ProtoPool (Rymarczyk et al. 2022): one pool of prototypes that classes share through slots, and a focal similarity.

Architecture, losses and phases top to bottom. Every class has S slots; each slot is a distribution over the pool while
it is trained (Gumbel-softmax) and one prototype everywhere else. Deviations from the released code: no noise and hard
slots in evaluation; by default the focal similarity of the paper (its equation 2) instead of similarities of pooled
distances; only prototypes with a positive probability count as a class's own; unassigned prototypes become inactive
instead of zero vectors; no mixup.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, ClassVar, Literal, get_args

import torch
from lightning import Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from protometry.lightning_modules.bases.card import Card
from protometry.lightning_modules.bases.interpretable import InterpretableModule, LossTerm
from protometry.lightning_modules.bases.losses import cluster, off_class_l1, separation, slot_orthogonality
from protometry.lightning_modules.contract import ModelOutput, UnitTable, owned_by_targets
from protometry.lightning_modules.heads.addon import AddonKind, addon_layers
from protometry.lightning_modules.heads.gumbel_slots import Slots
from protometry.lightning_modules.heads.linear_head import LinearHead
from protometry.lightning_modules.heads.prototypes import ComparesPatches, PrototypeLayer, Similarity, focal_similarity
from protometry.lightning_modules.phases import (
    FIT_HEAD,
    OptimizerSpec,
    Phase,
    PhasePlan,
    SchedulerSpec,
    one_cycle,
)
from protometry.metrics.primitives.checks import check_at_least, check_choice

Focal = Literal["similarity", "distance"]
LOSSES = {"cross_entropy": 1.0, "cluster": 0.8, "separation": -0.08, "slot_orthogonality": 1.0}
QUANPROTO_LOSSES = {"cross_entropy": 1.0, "cluster": 0.8, "separation": -0.08, "adjacent_orthogonality": 1.0}
HEAD_LOSSES = {"cross_entropy": 1.0, "off_class_l1": 1e-4}
COSINE_LOSSES = {"cross_entropy": 1.0, "cluster": 1.0, "separation": -0.1, "slot_orthogonality": 1.0}
HARDEN = "harden_assignment"


def _warm(epochs: int, rate: float, losses: dict[str, float], decay: dict[str, float]) -> Phase:
    rates = dict.fromkeys(("addon", "assignment", "prototypes"), rate)
    return Phase("warm", epochs, rates, losses, weight_decay=decay, bn="eval")


def _last(epochs: int, rate: float, l1: float, **changes: Any) -> Phase:
    losses = HEAD_LOSSES | {"off_class_l1": l1}
    actions = (HARDEN, "project")  # in this order: a prototype may become a patch of the classes it is assigned to
    return Phase("last", epochs, {"head": rate}, losses, bn="eval", on_enter=actions, selectable=True, **changes)


def _solved(rate: float) -> Phase:
    """One epoch that measures the solution; ``rate`` applies if the head is trained instead."""
    phase = _last(1, rate, 1e-4)
    return replace(phase, on_enter=(*phase.on_enter, FIT_HEAD))


def _sketch(name: str, epochs: int, **changes: Any) -> Phase:
    """A phase of the from-scratch schedule: one AdamW and one OneCycle throughout, as in ProtoPNet."""
    rates = dict.fromkeys(("backbone", "addon", "assignment", "prototypes"), 6e-3)
    return one_cycle(name, epochs, rates, LOSSES, OptimizerSpec("AdamW", {"weight_decay": 0.0}, "sketch"), **changes)


def _pretrained(name: str, epochs: int) -> Phase:
    """A phase that fine-tunes a pretrained backbone on few images: frozen BatchNorm, one Adam and one OneCycle."""
    rates = {"backbone": 1e-4, "addon": 1e-3, "assignment": 1e-3, "prototypes": 1e-3}
    adam = OptimizerSpec("Adam", key="joint")
    return one_cycle(name, epochs, rates, COSINE_LOSSES, adam, bn="eval", on_enter=("project",))


class ProtoPool(ComparesPatches, LinearHead, InterpretableModule):
    """Prototypes shared between classes.

    Source: Rymarczyk et al. 2022. Presets: ``original`` (the published rates; 20 joint epochs, while the original
    stopped by test accuracy), ``quanproto`` (Schlinge et al. 2025, CUB; with the projection that their code omits; with
    single labels set ``class_weights: true`` as they do), ``sketch`` (ours, for the from-scratch backbone) and
    ``pretrained`` (ours, for a pretrained backbone, cosine similarity and few images).

    The last two solve the last layer, the authors' two train it as published. docs/models/protopool.md has the effect
    of the solution, which was not measured with the authors' schedules.

    Args:
        num_prototypes: U, size of the pool, at least S.
        slots_per_class: S.
        prototype_channels: D, channels of the add-on and of the prototypes.
        addon: one 1×1 convolution; ``sigmoid`` is the original, ``linear`` suits ``cosine`` and few training images.
        similarity: ``l2_log`` or ``cosine``.
        epsilon: ε of ``l2_log``.
        own_class_init: initial head weight between a class and its own slots.
        off_class_init: initial head weight between a class and a slot of another class.
        gumbel_epochs: epochs until the Gumbel scale is full; by default the preset's, multiplied by ``epoch_scale``.
        temperature: τ of the Gumbel-softmax; by default the preset's.
        focal: ``similarity`` as in the paper, the largest similarity minus the mean; ``distance`` as in the released
            code, the similarity at the smallest minus the one at the mean distance (``l2_log`` only).

    Raises:
        ValueError: if the pool is smaller than the slots of a class, a count or the temperature is not positive,
            ``focal`` does not go with ``similarity``, the plan trains the assignment after hardening it, or the images
            have one cell only.

    Example:
        >>> model = ProtoPool(num_classes=4, image_size=(32, 32), num_prototypes=6, slots_per_class=2)
        >>> output = model(torch.rand(3, 3, 32, 32))
        >>> output.logits.shape, output.scores.shape, output.maps.shape
        (torch.Size([3, 4]), torch.Size([3, 6]), torch.Size([3, 6, 4, 4]))
    """

    card = Card(
        name="ProtoPool",
        units="prototypes shared by classes through slots",
        decision="linear head over slots",
        paper="Rymarczyk et al. 2022",
        url="https://arxiv.org/abs/2112.02902",
        page="protopool.md",
        tiny={"num_prototypes": 12, "slots_per_class": 2, "prototype_channels": 8, "off_class_init": -0.5},
    )
    presets: ClassVar[dict[str, PhasePlan]] = {
        "original": PhasePlan(
            (
                _warm(10, 3e-3, LOSSES, {"addon": 1e-3}),
                Phase(
                    "joint",
                    20,
                    {"backbone": 1e-4, "addon": 3e-3, "assignment": 3e-3, "prototypes": 3e-3},
                    LOSSES,
                    weight_decay={"backbone": 1e-3, "addon": 1e-3},
                    scheduler=SchedulerSpec("StepLR", {"step_size": 5, "gamma": 0.1}),
                ),
                _last(
                    25,
                    1e-4,
                    1e-4,
                    weight_decay={"head": 1e-3},
                    scheduler=SchedulerSpec("StepLR", {"step_size": 5, "gamma": 0.95}),
                ),
            )
        ),
        "quanproto": PhasePlan(
            (
                _warm(25, 2e-3, QUANPROTO_LOSSES, {}),
                Phase(
                    "joint",
                    100,
                    {"backbone": 7.9e-5, "addon": 1.3e-4, "assignment": 9e-4, "prototypes": 9e-4},
                    QUANPROTO_LOSSES,
                    scheduler=SchedulerSpec("StepLR", {"step_size": 20, "gamma": 0.5}),
                ),
                _last(10, 5e-4, 1e-3),
            )
        ),
        "pretrained": PhasePlan(
            (
                Phase(
                    "warm",
                    20,
                    {"addon": 3e-3, "assignment": 3e-3, "prototypes": 3e-3},
                    COSINE_LOSSES,
                    bn="eval",
                    on_enter=("project",),
                ),
                _pretrained("joint", 14),
                _pretrained("settle", 8),
                _solved(3e-3),
            )
        ),
        "sketch": PhasePlan(
            (
                _sketch("warm", 1),
                _sketch("joint", 6, on_enter=("project",)),
                _sketch("settle", 4, on_enter=("project",)),
                _solved(1e-2),
            )
        ),
    }
    gumbel: ClassVar[dict[str, tuple[int, float, int]]] = {  # preset -> epochs, temperature, delay
        "original": (30, 0.5, 0),
        "quanproto": (50, 1.0, 2),  # set from the epoch before, at the end of every epoch
        "pretrained": (30, 0.5, 0),
        "sketch": (4, 0.5, 0),
    }
    actions: ClassVar[tuple[str, ...]] = (HARDEN,)
    groups: ClassVar[dict[str, str]] = {
        "backbone": "backbone",
        "addon": "addon",
        "prototypes": "prototypes",
        "assignment": "slots",
        "head": "linear",
    }
    slot_owner: Tensor

    def __init__(  # noqa: PLR0913 - a command line sets these one by one
        self,
        num_prototypes: int = 200,
        slots_per_class: int = 10,
        prototype_channels: int = 128,
        addon: AddonKind = "sigmoid",
        similarity: Similarity = "l2_log",
        epsilon: float = 1e-4,
        own_class_init: float = 1.0,
        off_class_init: float = 0.0,
        gumbel_epochs: int | None = None,
        temperature: float | None = None,
        focal: Focal = "similarity",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        _check_focal(focal, similarity)
        self.focal: Focal = focal
        preset_epochs, preset_temperature, delay = self.gumbel[self.hparams["preset"]]
        scaled = max(1, round(preset_epochs * self.hparams["epoch_scale"]))
        epochs = scaled if gumbel_epochs is None else gumbel_epochs
        tau = preset_temperature if temperature is None else temperature
        _check_sizes(num_prototypes, slots_per_class, prototype_channels, epochs, tau)
        _check_plan(self.plan)
        if self.geometry.grid == (1, 1):
            raise ValueError(
                "Expected argument `image_size` to give the backbone more than one cell, because a focal similarity is "
                f"the largest of the cells minus their mean, and always 0 for one, but got {self.image_size}. Use "
                "larger images, or another backbone."
            )
        self.addon = addon_layers(self.backbone.out_channels, prototype_channels, addon=addon)
        self.prototypes = PrototypeLayer(num_prototypes, prototype_channels, similarity, epsilon)
        self.slots = Slots(self.num_classes, num_prototypes, slots_per_class, epochs, tau, delay)
        self.slots_per_class = slots_per_class
        classes = torch.arange(self.num_classes)
        self.register_buffer("slot_owner", classes.repeat_interleave(slots_per_class)[:, None] == classes)
        self.linear = nn.Linear(len(self.slot_owner), self.num_classes, bias=False)
        with torch.no_grad():
            self.linear.weight.copy_(torch.where(self.slot_owner.T, own_class_init, off_class_init))

    # -- slots -------------------------------------------------------------------------------------------------------
    def assignment(self) -> Tensor:
        """``(K, U, S)`` float, the distribution over the pool of every slot, as forward uses it."""
        return self.slots.assignment(self.global_step)

    def enter_phase(self, index: int) -> None:
        """Also make the processes agree on the seed of the noise."""
        super().enter_phase(index)
        self.slots.read_seed()

    def on_train_epoch_start(self) -> None:
        """Sharpen the slots by the Gumbel schedule."""
        self.slots.sharpen(self.current_epoch)

    @torch.no_grad()
    def harden_assignment(self, trainer: Trainer) -> dict[str, float]:
        """Action ``harden_assignment``: every slot keeps its arg-max; prototypes without a slot become inactive.

        Returns:
            assigned and unassigned prototypes, and repeated_slots: slots of a class on a prototype that an earlier
            slot of the class is on.
        """
        slots = self.slots.hard().sum(dim=2)  # (K, U)
        active = self.prototypes.active.copy_((slots > 0).any(dim=0))
        if unassigned := (~active).nonzero().flatten().tolist():
            rank_zero_info(f"Prototypes without any slot keep their vectors and become inactive: {unassigned}")
        if repeated := (slots > 1).nonzero().tolist():
            rank_zero_info(f"Classes with several slots on one prototype, as [class, prototype]: {repeated}")
        return {
            "assigned": float(active.sum()),
            "unassigned": float(len(unassigned)),
            "repeated_slots": float((slots - 1).clamp_min(0).sum()),
        }

    # -- the contract ------------------------------------------------------------------------------------------------
    def forward(self, images: Tensor) -> ModelOutput:
        """Backbone, add-on, similarity of every cell to every prototype, focal similarity, slots, linear head.

        In training, ``extras`` has the distances of the nearest cells.
        """
        latent = self.embed(images)
        if self.training:
            distances = self.prototypes.distances(latent)
            maps, extras = self.prototypes.similarities(distances), {"distance": distances.amin(dim=(2, 3))}
        else:
            maps, extras = self.prototypes.maps(latent), {}
        scores = self.pool(maps) * self.prototypes.active
        return ModelOutput(self.head(scores), scores, maps, latent, extras)

    def pool(self, maps: Tensor) -> Tensor:
        """Focal similarities."""
        if self.focal == "similarity":
            return focal_similarity(maps)
        mean = self.prototypes.distances_at(maps).mean(dim=(2, 3))
        return maps.amax(dim=(2, 3)) - self.prototypes.similarities(mean)

    def head(self, scores: Tensor) -> Tensor:
        """Logits ``(B, K)`` of scores ``(B, U)``, through the slots."""
        slots = torch.einsum("bu,kus->bks", scores, self.assignment())
        return self.linear(slots.flatten(1))  # type: ignore[no-any-return]

    def units(self) -> UnitTable:
        """Prototypes, if active owned by every class that has a slot on them; weights summed over the slots."""
        presence, active = self.slots.presence(), self.prototypes.active.clone()
        weight = self.linear.weight.view(self.num_classes, self.num_classes, self.slots_per_class)
        return UnitTable(
            kind="prototype",
            active=active,
            owner=presence.T & active[:, None],
            pool="focal",
            weight=torch.einsum("kcs,cus->ku", weight, self.slots.hard()),
            vectors=self.prototypes.vectors,
            source=self.prototypes.source(),
            comparison="projection" if self.prototypes.by_direction else "distance",
            presence=presence,
        )

    # -- losses ------------------------------------------------------------------------------------------------------
    def own(self) -> Tensor:
        """``(K, U)`` bool: the S prototypes with the most probability in the slots of each class, if they have any."""
        mass = self.assignment().detach().sum(dim=2)
        top = mass.topk(self.slots_per_class, dim=1)
        return torch.zeros_like(mass, dtype=torch.bool).scatter_(1, top.indices, top.values > 0)

    def loss_terms(self) -> dict[str, LossTerm]:
        """Adds ``cluster``, ``separation`` (against all active others), two orthogonalities and ``off_class_l1``.

        For multilabel data also ``absent_separation``, the separation of the labels an image does not have, as in the
        released code of Schlinge et al. 2025.
        """
        active, own = self.prototypes.active, cache(self.own)  # once for all terms
        several: dict[str, LossTerm] = {
            "absent_separation": lambda output, batch: separation(
                output.extras["distance"], own() | ~active, self.targets(batch) == 0
            )
        }
        return (super().loss_terms() | (several if self.task == "multilabel" else {})) | {
            "cluster": lambda output, batch: cluster(output.extras["distance"], own(), self.targets(batch)),
            "separation": lambda output, batch: separation(
                output.extras["distance"], own() | ~active, self.targets(batch)
            ),
            "slot_orthogonality": lambda output, batch: slot_orthogonality(self.slots.logits),
            "adjacent_orthogonality": lambda output, batch: slot_orthogonality(self.slots.logits, adjacent=True),
            "off_class_l1": lambda output, batch: off_class_l1(self.linear.weight, self.slot_owner),
        }

    # -- last layer --------------------------------------------------------------------------------------------------
    @torch.no_grad()
    def load_weights(self, weight: Tensor) -> None:
        """Set weights ``(K, U)``; prototypes without weight become inactive.

        Of several slots on one prototype, the first gets the weight.
        """
        slots = self.slots.hard().transpose(1, 2).flatten(0, 1)  # (K·S, U)
        first = slots.argmax(dim=0)
        used = (weight != 0).any(dim=0) & slots.any(dim=0)
        self.linear.weight.zero_()
        self.linear.weight[:, first[used]] = weight[:, used].to(self.linear.weight)
        self.prototypes.active.logical_and_(used)

    # -- projection --------------------------------------------------------------------------------------------------
    def allowed(self, targets: Tensor) -> Tensor:
        """``(B, U)`` bool: the class (``(B,)`` int64), or a label (``(B, K)`` bool), has a slot on the prototype."""
        return owned_by_targets(self.slots.presence().T, targets)


def _check_focal(focal: str, similarity: str) -> None:
    check_choice("focal", focal, get_args(Focal))
    if focal == "distance" and similarity != "l2_log":
        raise ValueError(
            f"Expected argument `focal` to be 'similarity' with `similarity: {similarity}`, but got 'distance'. Set "
            "`similarity: l2_log`."
        )


def _check_sizes(prototypes: int, slots: int, channels: int, epochs: int, temperature: float) -> None:
    for name, value in {"slots_per_class": slots, "prototype_channels": channels, "gumbel_epochs": epochs}.items():
        check_at_least(name, value, 1)
    if prototypes < slots:
        raise ValueError(
            f"Expected argument `num_prototypes` to be at least `slots_per_class` = {slots}, but got {prototypes}. "
            "Enlarge the pool or lower `slots_per_class`."
        )
    if temperature <= 0:
        raise ValueError(f"Expected argument `temperature` to be above 0, but got {temperature}.")


def _check_plan(plan: PhasePlan) -> None:
    """Hardening is final: later phases must not train the assignment."""
    hardened = False
    for phase in plan.phases:
        hardened |= HARDEN in phase.on_enter
        if hardened and "assignment" in phase.trainable:
            raise ValueError(
                f"Expected `phases.{phase.name}.trainable` not to name 'assignment', because the plan hardens it "
                f"before, but got {list(phase.trainable)}. Move '{HARDEN}' to a later phase."
            )
        hardened |= HARDEN in phase.on_exit
