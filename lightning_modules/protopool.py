"""ProtoPool (Rymarczyk et al. 2022): one pool of prototypes that classes share through slots, and a focal similarity.

Architecture, losses and phases top to bottom. Every class has S slots; each slot is a distribution over the pool while
it is trained (Gumbel-softmax) and one prototype everywhere else. Deviations from the released code: no noise and hard
slots in evaluation; the focal similarity of the paper (its equation 2) instead of similarities of pooled distances;
orthogonality over all pairs of slots; only prototypes with a positive probability count as a class's own; unassigned
prototypes become inactive instead of zero vectors; no mixup.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, cast

import torch
from lightning import Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_modules.contract import ModelOutput, SourceTable, UnitTable
from lightning_modules.heads.prototypes import PrototypeLayer
from lightning_modules.interpretable import InterpretableModule, LossTerm
from lightning_modules.losses import cluster, off_class_l1, separation
from lightning_modules.phases import OptimizerSpec, Phase, PhasePlan, SchedulerSpec

LOSSES = {"cross_entropy": 1.0, "cluster": 0.8, "separation": -0.08, "slot_orthogonality": 1.0}
HEAD_LOSSES = {"cross_entropy": 1.0, "off_class_l1": 1e-4}
HARDEN = "harden_assignment"
FULL_SCALE = 1000.0


def gumbel_scale(epoch: int, epochs: int) -> float:
    """What the assignment logits are multiplied by: c = 1000·√(e / E) for e < E, then 1000.

    Source: released code of Rymarczyk et al. 2022, whose start value cancels out. Deviation: e counts from 1; from 0,
    as there, the first epoch trains no slot.

    Args:
        epoch: 0-based epoch of the run, e - 1.
        epochs: E.

    Returns:
        In (0, 1000].

    Example:
        >>> gumbel_scale(0, 4), gumbel_scale(3, 4), gumbel_scale(99, 4)
        (500.0, 1000.0, 1000.0)
    """
    return FULL_SCALE * math.sqrt(min(1.0, (epoch + 1) / epochs))


def focal_similarity(maps: Tensor) -> Tensor:
    """How much the best cell stands out: maximum minus mean over the cells.

    Source: Rymarczyk et al. 2022, equation 2.

    Args:
        maps: ``(B, U, h, w)`` float similarities.

    Returns:
        ``(B, U)`` float >= 0; 0 for a constant map.

    Example:
        >>> focal_similarity(torch.tensor([[[[4.0, 0.0], [0.0, 0.0]]]]))
        tensor([[3.]])
    """
    return maps.amax(dim=(2, 3)) - maps.mean(dim=(2, 3))


def slot_orthogonality(logits: Tensor) -> Tensor:
    """How alike the slots of a class are: cosines of their logits, summed over all ordered pairs, per slot.

    Source: Rymarczyk et al. 2022, orthogonality loss: Σ_k Σ_{i≠j} cos(Q_ki, Q_kj) / (S·K). Deviation from the code of
    Schlinge et al. 2025: all pairs, not the adjacent ones only.

    Args:
        logits: ``(K, U, S)`` float, Q.

    Returns:
        Scalar in [-1, S - 1], lower is better.

    Example:
        >>> twice = torch.tensor([[[1.0, 2.0], [0.0, 0.0]]])  # one class, two slots on one prototype
        >>> slot_orthogonality(twice).item()
        1.0
    """
    unit = F.normalize(logits.float(), dim=1)
    cosines = torch.einsum("kui,kuj->kij", unit, unit)
    pairs = cosines.sum() - cosines.diagonal(dim1=1, dim2=2).sum()
    return pairs / (logits.shape[0] * logits.shape[2])


def _warm(epochs: int, rate: float, decay: dict[str, float]) -> Phase:
    rates = dict.fromkeys(("addon", "assignment", "prototypes"), rate)
    return Phase("warm", epochs, rates, LOSSES, weight_decay=decay, bn="eval")


def _last(epochs: int, rate: float, l1: float, **changes: Any) -> Phase:
    losses = HEAD_LOSSES | {"off_class_l1": l1}
    actions = (HARDEN, "project")  # in this order: a prototype may become a patch of the classes it is assigned to
    return Phase("last", epochs, {"head": rate}, losses, bn="eval", on_enter=actions, selectable=True, **changes)


def _sketch(name: str, epochs: int, **changes: Any) -> Phase:
    """A phase of the from-scratch schedule: one AdamW and one OneCycle throughout, as in ProtoPNet."""
    return Phase(
        name,
        epochs,
        {"trunk": 6e-3, "addon": 6e-3, "assignment": 6e-3, "prototypes": 6e-3},
        LOSSES,
        optimizer=OptimizerSpec("AdamW", {"weight_decay": 0.0}, key="sketch"),
        scheduler=SchedulerSpec("OneCycleLR", per="step"),
        **changes,
    )


class ProtoPool(InterpretableModule):
    """Prototypes shared between classes.

    Source: Rymarczyk et al. 2022. Presets: ``original`` (the published rates; 20 joint epochs where the original
    stopped by its test accuracy), ``quanproto`` (Schlinge et al. 2025, CUB; with the projection their code leaves out,
    without their class weights) and ``sketch`` (ours, for the from-scratch trunk).

    Args:
        num_prototypes: U, size of the pool, at least S.
        slots_per_class: S.
        prototype_channels: D, channels of the add-on and of the prototypes.
        epsilon: ε of the log-similarity.
        own_class_init: initial head weight between a class and its own slots.
        off_class_init: initial head weight between a class and a slot of another class.
        gumbel_epochs: epochs until the Gumbel scale is full, multiplied by ``epoch_scale``; by default the preset's.
        temperature: τ of the Gumbel-softmax; by default the preset's.
        kwargs: arguments of :class:`~lightning_modules.interpretable.InterpretableModule`.

    Raises:
        ValueError: if the pool is smaller than the slots of a class, a count or the temperature is not positive, or
            the plan trains the assignment after hardening it.

    Example:
        >>> model = ProtoPool(num_classes=4, image_size=(32, 32), num_prototypes=6, slots_per_class=2)
        >>> output = model(torch.rand(3, 3, 32, 32))
        >>> output.logits.shape, output.scores.shape, output.maps.shape
        (torch.Size([3, 4]), torch.Size([3, 6]), torch.Size([3, 6, 4, 4]))
    """

    presets: ClassVar[dict[str, PhasePlan]] = {
        "original": PhasePlan(
            (
                _warm(10, 3e-3, {"addon": 1e-3}),
                Phase(
                    "joint",
                    20,
                    {"trunk": 1e-4, "addon": 3e-3, "assignment": 3e-3, "prototypes": 3e-3},
                    LOSSES,
                    weight_decay={"trunk": 1e-3, "addon": 1e-3},
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
                _warm(25, 2e-3, {}),
                Phase(
                    "joint",
                    100,
                    {"trunk": 7.9e-5, "addon": 1.3e-4, "assignment": 9e-4, "prototypes": 9e-4},
                    LOSSES,
                    scheduler=SchedulerSpec("StepLR", {"step_size": 20, "gamma": 0.5}),
                ),
                _last(10, 5e-4, 1e-3),
            )
        ),
        "sketch": PhasePlan(
            (
                _sketch("warm", 1),
                _sketch("joint", 6, on_enter=("project",)),
                _sketch("settle", 4, on_enter=("project",)),
                _last(3, 1e-2, 1e-4),
            )
        ),
    }
    gumbel: ClassVar[dict[str, tuple[int, float]]] = {  # preset -> epochs, temperature
        "original": (30, 0.5),
        "quanproto": (50, 1.0),
        "sketch": (7, 0.5),
    }
    actions: ClassVar[tuple[str, ...]] = (HARDEN,)
    scale: Tensor
    noise_seed: Tensor
    slot_owner: Tensor

    def __init__(  # noqa: PLR0913 - a command line sets these one by one
        self,
        num_prototypes: int = 200,
        slots_per_class: int = 10,
        prototype_channels: int = 128,
        epsilon: float = 1e-4,
        own_class_init: float = 1.0,
        off_class_init: float = 0.0,
        gumbel_epochs: int | None = None,
        temperature: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        epochs, tau = self.gumbel[self.hparams["preset"]]
        epochs = epochs if gumbel_epochs is None else gumbel_epochs
        self.temperature = tau if temperature is None else temperature
        _check_sizes(num_prototypes, slots_per_class, prototype_channels, epochs, self.temperature)
        _check_plan(self.plan)
        self.slots = slots_per_class
        self.gumbel_epochs = max(1, round(epochs * self.hparams["epoch_scale"]))
        self.addon = _addon(self.trunk.out_channels, prototype_channels)
        self.prototypes = PrototypeLayer(num_prototypes, prototype_channels, "l2_log", epsilon)
        logits = torch.empty(self.num_classes, num_prototypes, slots_per_class)
        self.assignment_logits = nn.Parameter(nn.init.xavier_normal_(logits))
        self.register_buffer("scale", torch.tensor(gumbel_scale(0, self.gumbel_epochs)))
        self.register_buffer("noise_seed", torch.randint(2**31, ()))
        self._seed = int(self.noise_seed)
        classes = torch.arange(self.num_classes)
        self.register_buffer("slot_owner", classes.repeat_interleave(self.slots)[:, None] == classes)
        self.linear = nn.Linear(self.num_classes * self.slots, self.num_classes, bias=False)
        with torch.no_grad():
            self.linear.weight.copy_(torch.where(self.slot_owner.T, own_class_init, off_class_init))

    # -- slots -------------------------------------------------------------------------------------------------------
    def assignment(self) -> Tensor:
        """The distribution over the pool of every slot, as forward uses it.

        Where the logits are trained: Gumbel-softmax, its noise a function of (seed, optimiser step) and equal on all
        processes. Everywhere else the arg-max.

        Returns:
            ``(K, U, S)`` float, sums to 1 over U.
        """
        if not (self.training and self.assignment_logits.requires_grad):
            return self.hard_assignment()
        logits = self.assignment_logits
        generator = torch.Generator(logits.device).manual_seed(self._seed + self.global_step)
        waiting = torch.empty_like(logits).exponential_(generator=generator)
        noise = -waiting.clamp_min(torch.finfo(waiting.dtype).tiny).log()
        return ((logits * self.scale + noise) / self.temperature).softmax(dim=1)

    def hard_assignment(self) -> Tensor:
        """``(K, U, S)`` float, 1 at the prototype of each slot, the first on ties; 0 elsewhere."""
        chosen = self.assignment_logits.detach().argmax(dim=1, keepdim=True)
        return torch.zeros_like(self.assignment_logits).scatter_(1, chosen, 1.0)

    def enter_phase(self, index: int) -> None:
        """As the base does; reads the noise seed here, where the processes agree on it, so that no step waits."""
        super().enter_phase(index)
        self._seed = int(self.noise_seed)

    def on_train_epoch_start(self) -> None:
        """Sharpen the slots by the Gumbel schedule."""
        self.scale.fill_(gumbel_scale(self.current_epoch, self.gumbel_epochs))

    @torch.no_grad()
    def harden_assignment(self, trainer: Trainer) -> dict[str, float]:
        """Action ``harden_assignment``: every slot keeps its arg-max; prototypes without a slot become inactive.

        Args:
            trainer: not used.

        Returns:
            assigned and unassigned prototypes, and repeated_slots: slots of a class on a prototype that an earlier
            slot of the class is on.
        """
        slots = self.hard_assignment().sum(dim=2)  # (K, U)
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
        """Trunk, add-on, similarity of every cell to every prototype, focal similarity, slots, linear head."""
        latent = self.addon(self.trunk(images))
        distances = self.prototypes.distances(latent)
        maps = self.prototypes.similarities(distances)
        scores = focal_similarity(maps) * self.prototypes.active
        extras = {"distance": distances.amin(dim=(2, 3))}
        return ModelOutput(self.head(scores), scores, maps, latent, extras)

    def head(self, scores: Tensor) -> Tensor:
        """Logits ``(B, K)`` of scores ``(B, U)``, through the slots."""
        slots = torch.einsum("bu,kus->bks", scores, self.assignment())
        return self.linear(slots.flatten(1))  # type: ignore[no-any-return]

    def units(self) -> UnitTable:
        """Prototypes, owned by every class that has a slot on them; weights summed over the slots."""
        hard = self.hard_assignment()
        weight = self.linear.weight.view(self.num_classes, self.num_classes, self.slots)
        return UnitTable(
            kind="prototype",
            active=self.prototypes.active.clone(),
            owner=(hard > 0).any(dim=2).T,
            pool="focal",
            weight=torch.einsum("kcs,cus->ku", weight, hard),
            vectors=self.prototypes.vectors,
            source=self.prototypes.source(),
        )

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Groups ``trunk``, ``addon``, ``prototypes``, ``assignment``, ``head``."""
        return {
            "trunk": list(self.trunk.parameters()),
            "addon": list(self.addon.parameters()),
            "prototypes": list(self.prototypes.parameters()),
            "assignment": [self.assignment_logits],
            "head": list(self.linear.parameters()),
        }

    # -- losses ------------------------------------------------------------------------------------------------------
    def own(self, labels: Tensor) -> Tensor:
        """The S prototypes with the most probability in the slots of a class.

        Args:
            labels: ``(B,)`` int64.

        Returns:
            ``(B, U)`` bool; fewer than S where fewer have any probability.
        """
        mass = self.assignment().detach().sum(dim=2)
        top = mass.topk(self.slots, dim=1)
        own = torch.zeros_like(mass, dtype=torch.bool).scatter_(1, top.indices, top.values > 0)
        return own[labels]

    def loss_terms(self) -> dict[str, LossTerm]:
        """Adds ``cluster``, ``separation`` (against all active others), ``slot_orthogonality`` and ``off_class_l1``."""
        active = self.prototypes.active
        return super().loss_terms() | {
            "cluster": lambda output, batch: cluster(output.extras["distance"], self.own(batch["label"])),
            "separation": lambda output, batch: separation(
                output.extras["distance"], self.own(batch["label"]) | ~active
            ),
            "slot_orthogonality": lambda output, batch: slot_orthogonality(self.assignment_logits),
            "off_class_l1": lambda output, batch: off_class_l1(self.linear.weight, self.slot_owner),
        }

    # -- projection --------------------------------------------------------------------------------------------------
    def distance_maps(self, latent: Tensor) -> Tensor:
        """Direct distances ``(B, U, h, w)`` of every cell to every prototype."""
        return self.prototypes.distances(latent, direct=True)

    def allowed(self, targets: Tensor) -> Tensor:
        """``(B, U)`` bool: the class (``(B,)`` int64) of the image has a slot on the prototype."""
        return (self.hard_assignment() > 0).any(dim=2)[targets]

    def load_patches(self, patches: Tensor, valid: Tensor, source: SourceTable) -> None:
        """Replace the prototypes by latent patches of training images."""
        self.prototypes.load_patches(patches, valid, source)


def _addon(inputs: int, channels: int) -> nn.Sequential:
    """One 1×1 convolution between trunk and prototypes, Kaiming normal by fan-out, bias 0."""
    convolution = nn.Conv2d(inputs, channels, 1)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    nn.init.constant_(cast(Tensor, convolution.bias), 0.0)
    return nn.Sequential(convolution, nn.Sigmoid())


def _check_sizes(prototypes: int, slots: int, channels: int, epochs: int, temperature: float) -> None:
    for name, value in {"slots_per_class": slots, "prototype_channels": channels, "gumbel_epochs": epochs}.items():
        if value < 1:
            raise ValueError(f"Expected argument `{name}` to be at least 1, but got {value}.")
    if prototypes < slots:
        raise ValueError(
            f"Expected argument `num_prototypes` to be at least `slots_per_class` = {slots}, but got {prototypes}. "
            "Enlarge the pool or lower `slots_per_class`."
        )
    if temperature <= 0:
        raise ValueError(f"Expected argument `temperature` to be above 0, but got {temperature}.")


def _check_plan(plan: PhasePlan) -> None:
    """Hardening is final: later phases leave the assignment alone."""
    hardened = False
    for phase in plan.phases:
        hardened |= HARDEN in phase.on_enter
        if hardened and "assignment" in phase.trainable:
            raise ValueError(
                f"Expected `phases.{phase.name}.trainable` not to name 'assignment', because the plan hardens it "
                f"before, but got {list(phase.trainable)}. Move '{HARDEN}' to a later phase."
            )
        hardened |= HARDEN in phase.on_exit
