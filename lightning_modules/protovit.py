"""ProtoViT (Ma et al. 2024): prototypes of several parts, each sought in a patch of a transformer next to the last one.

Architecture, losses and phases top to bottom. Equations and coefficients are those of the released code. Deviations
from it:

- Cluster and separation cost are exact: the similarity of prototypes that do not count is not 0.
- Coherence is the mean, not the sum over prototypes, and of all pairs of parts, not of those with the last one.
- A part that is switched off is matched last, not before parts that are less similar; a prototype keeps at least one.
- Projection puts parts into the order in which they were found. In its source, where all have cosine 1, the first is
  taken first, so that the same cells are found again.
- Phases lack the terms of the loss that train nothing in them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protometry.lightning_modules.bases.card import Card
from protometry.lightning_modules.bases.class_prototypes import ClassPrototypes, fine_tuned, from_scratch
from protometry.lightning_modules.bases.interpretable import InterpretableModule, LossTerm
from protometry.lightning_modules.bases.losses import coherence, orthonormality
from protometry.lightning_modules.contract import ModelOutput, SourceTable, UnitTable
from protometry.lightning_modules.heads.prototypes import PrototypeLayer
from protometry.lightning_modules.phases import OptimizerSpec, Phase, PhasePlan, SchedulerSpec
from protometry.metrics.primitives.checks import check_at_least

SLOT_SCALE = 100  # of slot logits
SLOT_START = 0.1
LOSSES = {"cross_entropy": 1.0, "cluster": 0.8, "separation": -0.1, "orthonormality": 1e-3, "coherence": 3e-3}
SLOT_LOSSES = {"cross_entropy": 1.0, "coherence": 1e-6}


def _original() -> PhasePlan:
    """The schedule of the released code; AdamW decays what it trains by 1e-2 where nothing else is said."""
    adam: dict[str, Any] = {"optimizer": OptimizerSpec("AdamW")}
    decay = {"backbone": 1e-3, "prototypes": 1e-2}
    steps = SchedulerSpec("StepLR", {"step_size": 5, "gamma": 0.1})
    rates, last = {"backbone": 5e-5, "prototypes": 3e-3}, {"cross_entropy": 1.0, "off_class_l1": 1e-2}
    end: dict[str, Any] = {"bn": "eval", "on_enter": ("project",), "selectable": True}
    return PhasePlan(
        (
            Phase("warm", 5, {"backbone": 1e-7, "prototypes": 3e-3}, LOSSES, weight_decay=decay, **adam),
            Phase("joint", 10, rates, LOSSES, weight_decay=decay, scheduler=steps, **adam),
            Phase("slots", 5, {"slots": 5e-5}, SLOT_LOSSES, weight_decay={"slots": 1e-2}, bn="eval", **adam),
            Phase("last", 15, {"head": 1e-4}, last, weight_decay={"head": 1e-2}, **end, **adam),
        )
    )


def _with_slots(plan: PhasePlan) -> PhasePlan:
    """One of our plans, but slots are trained in a phase of their own before the last one and in no other."""
    changed = plan.override({phase.name: {"trainable": {"slots": None}} for phase in plan.phases[:-1]})
    slots = Phase("slots", 2, {"slots": 2e-3}, SLOT_LOSSES, bn="eval", optimizer=OptimizerSpec("AdamW"))
    return PhasePlan((*changed.phases[:-1], slots, changed.phases[-1]))


def greedy_match(cosines: Tensor, last: Tensor, width: int, radius: int) -> tuple[Tensor, Tensor]:
    """The cells in which the parts of prototypes are found, each next to the one before it.

    Source: Ma et al. 2024, greedy matching with adjacency. The first pair of a part and a cell is the most similar of
    all; each further one is the most similar among the parts and cells that are left, whose cells lie within ``radius``
    rows and columns of the cell chosen last. The first part, then the first cell, on ties.

    Args:
        cosines: ``(B, U, P, S)`` float in [-1, 1], of parts and cells in row-major order. Memory: three times as much.
        last: ``(U, P)`` or ``(B, U, P)`` bool, parts that are chosen after all others.
        width: columns of the grid.
        radius: r with (r + 1)² >= P, without which a corner may have no cell left.

    Returns:
        Parts and their cells ``(B, U, P)`` int64, in the order in which they are found.

    Example:
        >>> row = torch.tensor([[[[0.0, 0.3, 0.1, 0.8], [0.9, 0.2, 0.1, 0.0]]]])  # two parts, four cells in a row
        >>> greedy_match(row, torch.tensor([[False, False]]), width=4, radius=1)  # cell 3 is too far from cell 0
        (tensor([[[1, 0]]]), tensor([[[0, 1]]]))
    """
    parts, places = (torch.arange(size, device=cosines.device) for size in cosines.shape[2:])
    left = cosines - 3 * last[..., None]  # below all others
    candidates, found = left, []
    for _ in range(cosines.shape[2]):
        best = candidates.flatten(2).argmax(dim=2, keepdim=True)
        part, cell = best // cosines.shape[3], best % cosines.shape[3]
        found.append((part, cell))
        left = left.masked_fill((parts == part)[..., None] | (places == cell)[:, :, None], -torch.inf)
        rows, columns = (places // width - cell // width).abs(), (places % width - cell % width).abs()
        candidates = left.masked_fill((torch.maximum(rows, columns) > radius)[:, :, None], -torch.inf)
    order, cells = (torch.cat(column, dim=2) for column in zip(*found, strict=True))
    return order, cells


def _on_grid(latent: Tensor, cells: Tensor, values: Tensor, elsewhere: float) -> Tensor:
    """Maps ``(B, U, h, w)`` with values ``(B, U, n)`` in the n cells of each and one value in all other cells."""
    maps = values.new_full((*values.shape[:2], latent.shape[2] * latent.shape[3]), elsewhere)
    return maps.scatter(2, cells, values).view(*maps.shape[:2], *latent.shape[2:])


class SlotPrototypes(PrototypeLayer):
    """U prototypes of P parts, stored as vectors ``(U·P, D)``, each compared by cosine with every cell."""

    def __init__(self, num_prototypes: int, parts: int, channels: int) -> None:
        super().__init__(num_prototypes, channels, "cosine")
        self.parts = parts
        self.vectors = nn.Parameter(torch.rand(num_prototypes * parts, channels))

    def cosines(self, latent: Tensor, units: Tensor | None = None) -> Tensor:
        """Cosines ``(B, U, P, h·w)`` of the parts of all or some units, as exact as the distances."""
        if units is not None:
            units = (units[:, :, None] * self.parts + torch.arange(self.parts, device=units.device)).flatten(1)
        cosines = 1 - self.distances(latent, units=units).flatten(2)
        return cosines.view(cosines.shape[0], -1, self.parts, cosines.shape[2])

    def by_unit(self) -> Tensor:
        """The vectors of the parts of each prototype, ``(U, P, D)``."""
        return self.vectors.view(-1, self.parts, self.vectors.shape[1])


class PartSlots(nn.Module):
    """How much each of P parts counts in its prototype.

    Source: Ma et al. 2024: σ(100 v), which is nearly 0 or 1. They start at nearly 1.

    Example:
        >>> slots = PartSlots(1, 4)
        >>> _ = slots.logits.data.copy_(torch.tensor([[0.5, 0.5, -0.5, 0.5]]))
        >>> slots().detach().round(decimals=4)
        tensor([[1.3333, 1.3333, 0.0000, 1.3333]])
    """

    def __init__(self, num_prototypes: int, parts: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.full((num_prototypes, parts), SLOT_START))

    def openness(self) -> Tensor:
        """σ(100 v), ``(U, P)``."""
        return (SLOT_SCALE * self.logits).sigmoid()

    def forward(self) -> Tensor:
        """The weights of parts ``(U, P)``, which sum to P."""
        openness = self.openness()
        return openness * (openness.shape[1] / openness.sum(dim=1, keepdim=True).clamp_min(1e-10))

    def is_off(self) -> Tensor:
        """``(U, P)`` bool, the part counts less than half."""
        return self.logits < 0

    @torch.no_grad()
    def round(self, found: Tensor) -> None:
        """Make parts of trained slots count fully or not at all, and at least one of a prototype.

        Where ``found`` (U,), parts come in the order in which they were found, those that count before the others.
        """
        on = ~self.is_off() | (self.logits == self.logits.amax(dim=1, keepdim=True))
        rounded = torch.where(on, 2.0, -2.0)  # σ(±200) is 1 and 0
        ordered = torch.where(found[:, None], rounded.sort(dim=1, descending=True).values, rounded)
        trained = (self.logits != SLOT_START).any(dim=1, keepdim=True)
        self.logits.copy_(torch.where(trained, ordered, self.logits))


class ProtoViT(ClassPrototypes):
    """Adaptive prototype-based vision transformer.

    Source: Ma et al. 2024. The latent are the patches of a transformer minus its class token; backbones of timm and
    torchvision without class token, and modules of your own, give their features as they are. A prototype has P parts,
    which :func:`greedy_match` seeks in neighbouring patches. Its score is the sum of the cosines of its parts, weighted
    by slots (:class:`PartSlots`); its map holds the terms of this sum where the parts are, and 0 elsewhere.

    Presets: ``original`` (published for CUB), ``sketch`` and ``pretrained`` (ours, see :func:`from_scratch` and
    :func:`fine_tuned`, with a phase for the slots before the last).

    Args:
        prototypes_per_class: prototypes owned by each class.
        parts: P.
        radius: how many rows and columns a part may lie from the part found before it.
        own_class_init: as for ProtoPNet.
        off_class_init: as for ProtoPNet.

    Raises:
        ValueError: if a number is out of range, or the neighbourhood of a corner has fewer cells than a prototype
            parts.

    Example:
        >>> model = ProtoViT(num_classes=4, image_size=(32, 32), prototypes_per_class=2).eval()
        >>> output = model(torch.rand(3, 3, 32, 32))
        >>> output.scores.shape, output.maps.shape, output.cells.shape
        (torch.Size([3, 8]), torch.Size([3, 8, 4, 4]), torch.Size([3, 8, 4]))
    """

    card = Card(
        name="ProtoViT",
        units="prototypes of a class, of parts in neighbouring patches of a transformer",
        decision="linear head over sums of similarities",
        paper="Ma et al. 2024",
        url="https://arxiv.org/abs/2410.20722",
        page="protovit.md",
        tiny={"prototypes_per_class": 2, "parts": 3},
    )
    presets: ClassVar[dict[str, PhasePlan]] = {
        "original": _original(),
        "pretrained": _with_slots(fine_tuned(LOSSES, "slots")),
        "sketch": _with_slots(from_scratch(LOSSES, "slots")),
    }
    groups: ClassVar[dict[str, str]] = {"slots": "slots", "prototypes": "prototypes"} | InterpretableModule.groups
    minus_class_token: ClassVar[bool] = True

    prototypes: SlotPrototypes

    def __init__(
        self,
        prototypes_per_class: int = 10,
        parts: int = 4,
        radius: int = 1,
        own_class_init: float = 1.0,
        off_class_init: float | None = -0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("prototypes_per_class", prototypes_per_class), ("parts", parts), ("radius", radius)):
            check_at_least(name, value, 1)
        rows, columns = (min(radius + 1, side) for side in self.geometry.grid)
        if rows * columns < parts:
            raise ValueError(
                f"Expected argument `parts` to be at most {rows * columns}, the cells that a corner of the grid "
                f"{self.geometry.grid} has within `radius` {radius}, itself included, but got {parts}. "
                "More cells need a larger `image_size` or `radius`."
            )
        self.parts, self.radius = parts, radius
        units = prototypes_per_class * self.num_classes
        self.prototypes = SlotPrototypes(units, parts, self.backbone.out_channels)
        self.slots = PartSlots(units, parts)
        self.own_prototypes(prototypes_per_class, own_class_init, off_class_init)

    # -- from image to class -----------------------------------------------------------------------------------------
    def forward(self, images: Tensor) -> ModelOutput:
        """Backbone, parts of every prototype, their weighted cosines, linear head."""
        latent = self.backbone(images)
        cosines, values, cells, found = self._match(latent)
        maps = _on_grid(latent, cells, values, 0.0)
        scores = values.sum(dim=2) * self.prototypes.active
        if self.training:
            return ModelOutput(self.head(scores), scores, maps, latent, {"distance": 1 - cosines.amax(dim=2)})
        cells = torch.where(self.slots.is_off(), found[..., :1], cells)
        return ModelOutput(self.head(scores), scores, maps, latent, cells=cells)

    def _match(self, latent: Tensor, units: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Cosines, weighted cosines, cells, and cells in the order found, ``(B, U, P)``, of the parts of units."""
        off, weights = self.slots.is_off(), self.slots()
        off, weights = (off, weights) if units is None else (off[units], weights[units])
        every = self.prototypes.cosines(latent, units)
        order, found = greedy_match(every.detach(), off, latent.shape[3], self.radius)
        cells = torch.zeros_like(found).scatter(2, order, found)
        cosines = every.gather(3, cells[..., None]).squeeze(3)
        return cosines, cosines * weights, cells, found

    def unit_scores(self, images: Tensor, units: Tensor) -> Tensor:
        """Scores ``(B, k)`` of the given prototypes ``(B, k)`` of each image only."""
        return self._match(self.backbone(images), units)[1].sum(dim=2) * self.prototypes.active[units]

    def units(self) -> UnitTable:
        """Prototypes of several parts, owned by their class; parts that are switched off are 0."""
        vectors = self.prototypes.by_unit() * ~self.slots.is_off()[..., None]
        return replace(super().units(), pool="sum", parts=self.parts, vectors=vectors.flatten(1))

    # -- projection --------------------------------------------------------------------------------------------------
    def embed(self, images: Tensor) -> Tensor:
        """What parts become if a prototype starts at a cell, ``(B, P·D, h, w)``: it and cells right of it and below."""
        latent = self.backbone(images)
        side = self.radius + 1
        padded = F.pad(latent, (0, side - 1, 0, side - 1), mode="replicate")
        windows = F.unfold(padded, side).view(*latent.shape[:2], side**2, *latent.shape[2:])
        return windows[:, :, : self.parts].transpose(1, 2).flatten(1, 2)

    def distance_maps(self, latent: Tensor, units: Tensor | None = None) -> Tensor:
        """1 - score / P, ``(B, U, h, w)``, at the cell found first of what was embedded; 2, the largest, elsewhere."""
        _, values, _, found = self._match(latent[:, : self.backbone.out_channels], units)
        return _on_grid(latent, found[..., :1], 1 - values.mean(dim=2, keepdim=True), 2.0)

    def part_cells(self, latent: Tensor, units: Tensor | None = None) -> Tensor:
        """``(B, U, P)`` int64, the cells of the parts of all or some units, in the order in which they are found."""
        return self._match(latent[:, : self.backbone.out_channels], units)[3]

    def load_patches(self, patches: Tensor, valid: Tensor, source: SourceTable) -> None:
        """Replace the parts by those found, in their order, so that they are found alike again, and round the slots."""
        parts = patches.reshape(self.prototypes.vectors.shape)
        super().load_patches(parts, valid.repeat_interleave(self.parts), source)
        self.slots.round(valid)

    # -- losses ------------------------------------------------------------------------------------------------------
    def loss_terms(self) -> dict[str, LossTerm]:
        """Adds ``orthonormality`` of a class, (P − 1)·U less than in the released code, and ``coherence``."""
        return super().loss_terms() | {
            "orthonormality": lambda output, batch: self.parts * orthonormality(self.bases()),
            "coherence": lambda output, batch: coherence(self.prototypes.by_unit(), self.slots.openness()),
        }

    def bases(self) -> Tensor:
        """``(K, M, P·D)`` float, the prototypes of each class, of length 1 with parts of length 1/√P; 0 if pruned."""
        vectors = F.normalize(self.prototypes.by_unit().float(), dim=2).flatten(1) * self.parts**-0.5
        bases: Tensor = (vectors * self.prototypes.active[:, None]).view(self.num_classes, -1, vectors.shape[1])
        return bases
