"""Deformable ProtoPNet (Donnelly et al. 2022): prototypes of several parts, each of which is sought where it moved to.

Architecture, losses and phases top to bottom. Deviations from the released code:

- The separation cost is of the cosines without the margin, as in the paper, and cluster and separation cost are exact.
- The orthogonality cost groups prototypes by class, as in the paper; the code takes K prototypes in a row for a class.
- Beyond the border of the latent map is the zero vector, which channel ε makes a vector of length 1 like all others, so
  that a prototype scores exactly 1 where it was projected from; the code has vectors of length 0 there.
- One channel ε, not two, which their CUDA kernel needed. Length and angle are exact: no 1e-4 under the root, no 1.01.
- The gradient of the interpolation is that of its formula. The code has another one for the offsets, of the values in
  place of their squares.
- No penalty of the offsets: the released one has no gradient.
- The offsets of 3 x 3 parts are as many as the cells of the latent; the code loses a cell on each side.
- Offset layers start at N(0, 2e-5²) and are frozen in the first phases; the code sets them to 0 until then.
- Cells are made smaller by dilation in the backbone (``output_stride: 16``) where the paper interpolates the latent.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protometry.lightning_modules.bases.card import Card
from protometry.lightning_modules.bases.class_prototypes import HEAD_LOSSES, ClassPrototypes, fine_tuned, from_scratch
from protometry.lightning_modules.bases.interpretable import LossTerm, Task
from protometry.lightning_modules.bases.losses import cross_entropy, part_orthogonality
from protometry.lightning_modules.contract import ModelOutput, UnitTable
from protometry.lightning_modules.heads.prototypes import PrototypeLayer, nearest_distance
from protometry.lightning_modules.phases import OptimizerSpec, Phase, PhasePlan, SchedulerSpec
from protometry.metrics.primitives.checks import check_at_least

EPSILON = 1e-4  # the additional channel of latent and prototypes
SCALE = 64  # length of a latent patch where offsets are computed from it
LOSSES = {"margin_cross_entropy": 1.0, "cluster": 0.8, "separation": -0.08}
ALL_LOSSES = LOSSES | {"part_orthogonality": 0.1}


def _original() -> PhasePlan:
    """The schedule of the released code: prototypes, then the backbone, then offsets, with a projection in between."""
    rates = {"prototypes": 3e-3, "backbone": 1e-4, "offsets": 1e-4}
    decay = SchedulerSpec("StepLR", {"step_size": 5, "gamma": 0.2})
    shared: dict[str, Any] = {"weight_decay": {"backbone": 1e-3}, "optimizer": OptimizerSpec("Adam", key="joint")}
    return PhasePlan(
        (
            Phase("warm", 5, {"prototypes": 3e-3}, LOSSES, bn="eval"),
            Phase("backbone", 5, {"prototypes": 3e-3, "backbone": 1e-4}, LOSSES, weight_decay={"backbone": 1e-3}),
            Phase("joint", 11, rates, ALL_LOSSES, scheduler=decay, **shared),
            Phase("joint2", 10, rates, ALL_LOSSES, scheduler=decay, on_enter=("project",), **shared),
            Phase("last", 1, {"head": 0.0}, HEAD_LOSSES, bn="eval", on_enter=("project",), selectable=True),
        )
    )


def on_sphere(vectors: Tensor, dim: int) -> Tensor:
    """Vectors with the additional channel ε, divided by their length; a zero vector becomes that of channel ε.

    Example:
        >>> on_sphere(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), dim=1).round(decimals=3)
        tensor([[0.6000, 0.8000, 0.0000],
                [0.0000, 0.0000, 1.0000]])
    """
    epsilon = torch.full_like(vectors.narrow(dim, 0, 1), EPSILON)
    return F.normalize(torch.cat([vectors, epsilon], dim), dim=dim)


def sample(directions: Tensor, places: Tensor) -> Tensor:
    """Vectors between cells, as long as those of the cells: roots of interpolated squares.

    Source: Donnelly et al. 2022, interpolation that preserves the norm: z_c = √(Σ_n w_n z_nc²), w being the bilinear
    weights of the four nearest cells. The root is that of its argument from 1e-8 on, and below it linear, so that it
    has a gradient at 0.

    Args:
        directions: ``(B, D, h, w)`` float, >= 0, of length 1.
        places: ``(B, n, m, 2)`` float, (x, y) in cells, (0, 0) being the first; beyond the border the nearest counts.

    Returns:
        ``(B, D, n, m)`` float of length 1.

    Example:
        >>> cells = torch.eye(2).reshape(1, 2, 1, 2)  # (1, 0), then (0, 1)
        >>> sample(cells, torch.tensor([0.5, 0.0]).view(1, 1, 1, 2)).flatten()
        tensor([0.7071, 0.7071])
    """
    sides = directions.shape[3], directions.shape[2]
    grid = [2 * place / max(side - 1, 1) - 1 for place, side in zip(places.unbind(-1), sides, strict=True)]
    squares = F.grid_sample(directions.square(), torch.stack(grid, dim=-1), padding_mode="border", align_corners=True)
    return squares / squares.clamp_min(1e-8).sqrt()


class DeformablePrototypes(PrototypeLayer):
    """Prototypes of P parts ``(U, P·D)``, compared by cosine; each part and each part of a patch has length 1/√P."""

    def __init__(self, num_prototypes: int, parts: int, channels: int) -> None:
        super().__init__(num_prototypes, parts * channels, "cosine")
        self.parts = parts
        nn.init.uniform_(self.vectors)  # the latent is not negative

    def directions(self, vectors: Tensor) -> Tensor:
        """Prototypes or patches ``(n, P·D, ...)`` with their channels ε, ``(n, P·(D + 1), ...)``, of length 1."""
        shape = (vectors.shape[0], self.parts, vectors.shape[1] // self.parts, *vectors.shape[2:])
        parts = vectors.reshape(shape)  # len() would fix the number of images in an export
        return on_sphere(parts, dim=2).flatten(1, 2) / math.sqrt(self.parts)


class DeformableProtoPNet(ClassPrototypes):
    """Deformable prototypical part network.

    Source: Donnelly et al. 2022. A prototype has side x side parts. Around each cell, its parts are sought ``dilation``
    cells apart, each moved by an offset that two convolutions compute from the latent there; offsets depend on the
    image, the cell and the part, not on the prototype. The score is the largest cosine over cells. In the cross-entropy
    of training, the angle to prototypes of other classes is smaller by the margin (``margin_cross_entropy``). Single
    labels only.

    Presets: ``original`` (published for CUB), ``sketch`` and ``pretrained`` (ours, see :func:`from_scratch` and
    :func:`fine_tuned`).

    Args:
        prototypes_per_class: prototypes owned by each class.
        side: parts of a prototype in each direction.
        dilation: cells between neighbouring parts without offset; with an even side an even number.
        margin: φ, in radians.
        hidden: channels between the two convolutions that compute offsets.
        own_class_init: as for ProtoPNet.
        off_class_init: as for ProtoPNet.

    Raises:
        ValueError: if a number is out of range, or parts without offset would lie between cells.

    Example:
        >>> model = DeformableProtoPNet(num_classes=4, image_size=(32, 32), prototypes_per_class=2).eval()
        >>> output = model(torch.rand(3, 3, 32, 32))
        >>> output.scores.shape, output.maps.shape, output.cells.shape
        (torch.Size([3, 8]), torch.Size([3, 8, 4, 4]), torch.Size([3, 8, 4]))
    """

    card = Card(
        name="Deformable ProtoPNet",
        units="prototypes of a class, of several parts that move",
        decision="linear head over best similarities",
        paper="Donnelly et al. 2022",
        url="https://arxiv.org/abs/2111.15000",
        page="deformable_protopnet.md",
        tiny={"prototypes_per_class": 2, "hidden": 8},
    )
    presets: ClassVar[dict[str, PhasePlan]] = {
        "original": _original(),
        "pretrained": fine_tuned(ALL_LOSSES, "offsets", rate=1e-4),
        "sketch": from_scratch(ALL_LOSSES, "offsets", rate=1e-4),
    }
    tasks: ClassVar[tuple[Task, ...]] = ("multiclass",)
    groups: ClassVar[dict[str, str]] = {
        "backbone": "backbone",
        "offsets": "offsets",
        "prototypes": "prototypes",
        "head": "linear",
    }

    prototypes: DeformablePrototypes
    steps: Tensor

    def __init__(  # noqa: PLR0913 - a command line sets these one by one
        self,
        prototypes_per_class: int = 6,
        side: int = 2,
        dilation: int = 2,
        margin: float = 0.1,
        hidden: int = 128,
        own_class_init: float = 1.0,
        off_class_init: float | None = -0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("prototypes_per_class", prototypes_per_class), ("side", side), ("hidden", hidden)):
            check_at_least(name, value, 1)
        if dilation < 1 or dilation * (side - 1) % 2:
            raise ValueError(
                f"Expected argument `dilation` to be at least 1, and even if `side` is ({side}), so that parts lie "
                f"around a cell, but got {dilation}."
            )
        if not 0 <= margin < math.pi / 2:
            raise ValueError(f"Expected argument `margin` to be at least 0 and below π/2, but got {margin}.")
        least = side + 2 - 2 * ((side + 1) // 2)  # cells that the first convolution of the offsets reads
        if min(self.geometry.grid) < least:
            raise ValueError(
                f"Expected argument `image_size` to give at least {least} cells in each direction with `side` {side}, "
                f"but {self.image_size} gives {self.geometry.grid}."
            )
        channels = self.backbone.out_channels
        self.margin, self.parts = margin, side**2
        layers = (
            nn.Conv2d(channels + 1, hidden, side + 2, padding=(side + 1) // 2),
            nn.Conv2d(hidden, 2 * self.parts, side, padding=side // 2),
        )
        for layer in layers:
            nn.init.normal_(layer.weight, std=2e-5)
            nn.init.zeros_(cast(Tensor, layer.bias))
        self.offsets = nn.Sequential(layers[0], nn.ReLU(), layers[1])
        along = dilation * (torch.arange(side) - (side - 1) / 2)
        steps = torch.stack(torch.meshgrid(along, along, indexing="xy"), dim=2)  # (x, y) of parts, row by row
        self.register_buffer("steps", steps.reshape(-1, 2), persistent=False)
        self.prototypes = DeformablePrototypes(prototypes_per_class * self.num_classes, self.parts, channels)
        self.own_prototypes(prototypes_per_class, own_class_init, off_class_init)

    # -- from image to class -----------------------------------------------------------------------------------------
    def forward(self, images: Tensor) -> ModelOutput:
        """Backbone, parts around every cell, cosine to every prototype, best cell, linear head."""
        latent = self.backbone(images).relu()
        patches, places = self.patches(latent)
        if not self.training:
            maps = self.prototypes.maps(patches)
            scores = self.pool(maps) * self.prototypes.active
            return ModelOutput(self.head(scores), scores, maps, latent, cells=self._cells(maps, places))
        distances = self.prototypes.distances(patches)
        nearest = nearest_distance(distances)
        maps = self.prototypes.similarities(distances.detach())
        scores = self.prototypes.similarities(nearest) * self.prototypes.active
        return ModelOutput(self.head(scores), scores, maps, latent, {"distance": nearest})

    def embed(self, images: Tensor) -> Tensor:
        """The parts around every cell, ``(B, P·D, h, w)``."""
        return self.patches(self.backbone(images).relu())[0]

    def patches(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """The parts around every cell of a latent ``(B, D, h, w)``, and where they are.

        Returns:
            Patches ``(B, P·D, h, w)`` float32, which :func:`on_sphere` makes what was sampled, and places
            ``(B, P, h, w, 2)`` float32, (x, y) in cells.
        """
        with torch.autocast(latent.device.type, enabled=False):
            latent = latent.float()
            rows, columns = (torch.arange(size, device=latent.device) for size in latent.shape[2:])
            cells = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), dim=2)  # (h, w, 2)
            around = on_sphere(F.pad(latent, (1, 1, 1, 1)), dim=1)
            offsets = self.offsets(SCALE / math.sqrt(self.parts) * around[:, :, 1:-1, 1:-1])
            moved = offsets.unflatten(1, (self.parts, 2)).movedim(2, -1).flip(-1)  # each is (y, x)
            places = cells + self.steps[:, None, None] + moved
            parts = sample(around, places.flatten(1, 2) + 1)
            parts = parts.view(*around.shape[:2], *places.shape[1:4])  # (B, D + 1, P, h, w)
            patches = parts[:, :-1] * (EPSILON / parts[:, -1:].clamp_min(EPSILON))
            return patches.transpose(1, 2).flatten(1, 2), places

    def _cells(self, maps: Tensor, places: Tensor) -> Tensor:
        """``(B, U, P)`` int64, the cells nearest to the parts around the best cell of each map."""
        height, width = maps.shape[2:]
        best = maps.flatten(2).argmax(dim=2)[:, None].expand(-1, self.parts, -1)  # (B, P, U)
        x, y = (axis.gather(2, best).round().long() for axis in places.flatten(2, 3).unbind(-1))
        return (y.clamp(0, height - 1) * width + x.clamp(0, width - 1)).transpose(1, 2)

    def units(self) -> UnitTable:
        """Prototypes of several parts, owned by their class."""
        return replace(super().units(), parts=self.parts)

    # -- losses ------------------------------------------------------------------------------------------------------
    def loss_terms(self) -> dict[str, LossTerm]:
        """Adds ``margin_cross_entropy`` and ``part_orthogonality``."""
        return super().loss_terms() | {
            "margin_cross_entropy": self._margin_cross_entropy,
            "part_orthogonality": lambda output, batch: part_orthogonality(
                self.prototypes.vectors.view(self.num_classes, -1, self.backbone.out_channels)
            ),
        }

    def _margin_cross_entropy(self, output: ModelOutput, batch: dict[str, Any]) -> Tensor:
        """Cross-entropy of scores cos(max(θ - φ, 0)) for prototypes of other classes, cos θ for those of its own.

        Source: Donnelly et al. 2022, subtractive margin. With c = cos θ up to cos φ,
        cos(θ - φ) = c cos φ + √(1 - c²) sin φ.
        """
        cosine = 1 - output.extras["distance"]
        below = cosine.clamp(-math.cos(self.margin), math.cos(self.margin))
        nearer = below * math.cos(self.margin) + (1 - below.square()).sqrt() * math.sin(self.margin)
        scores = torch.where(self.allowed(batch["label"]), cosine, nearer).clamp_min(0) * self.prototypes.active
        logits = self.head(scores)
        return cross_entropy(logits, batch["label"], batch.get("class_targets"), self.class_weights)
