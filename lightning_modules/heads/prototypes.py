"""Prototype vectors compared with every cell of a latent map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from protometry.lightning_modules.backbones import Backbone
from protometry.lightning_modules.contract import SourceTable, empty_sources
from protometry.metrics.primitives.checks import check_choice

Similarity = Literal["l2_log", "cosine", "cosine_exp", "exp"]
SOURCE_BUFFERS = ("sample_key", "row", "col", "label", "distance", "box")
TEMPERATURE = 0.1  # of ``cosine_exp``: a cosine of 0.9 scores a third of an exact hit, one of 0.5 next to nothing
BLOCK = 128  # prototypes compared at a time in float64, so that intermediate results stay in the cache of a CPU
DEVICE_BLOCK = 2048  # the same on an accelerator, which needs larger blocks
ROUNDING = 1e-13  # of ‖z‖² + ‖p‖² in float64; vectors that differ by less are equal


def focal_similarity(maps: Tensor) -> Tensor:
    """The focal similarity ``(B, U)``, >= 0: maximum minus mean over the cells of maps ``(B, U, h, w)``.

    Source: Rymarczyk et al. 2022 (ProtoPool), equation 2.

    Example:
        >>> focal_similarity(torch.tensor([[[[4.0, 0.0], [0.0, 0.0]]]]))
        tensor([[3.]])
    """
    return maps.amax(dim=(2, 3)) - maps.mean(dim=(2, 3))


def nearest_distance(distances: Tensor) -> Tensor:
    """The distance of the nearest cell, whose gradient goes only to that cell, the first on ties.

    Similarity falls with distance, so that the similarity of the nearest cell is the largest of its map; in training it
    is computed without a gradient through the logarithm of every other cell.

    Example:
        >>> distances = torch.tensor([[[[2.0, 1.0], [1.0, 3.0]]]], requires_grad=True)
        >>> nearest_distance(distances).sum().backward()
        >>> distances.grad
        tensor([[[[0., 1.],
                  [0., 0.]]]])
    """
    return distances.flatten(2).min(dim=2).values


class PrototypeLayer(nn.Module):
    """U prototype vectors, their activity, and their source patches.

    Source: Chen et al. 2019 (ProtoPNet): d = ‖z − p‖² at every cell, s = log((d + 1)/(d + ε)). With ``cosine`` both
    sides are normalised, d = 1 − cos and s = max(1 − d, 0); with ``cosine_exp`` (ours), s = exp(−d/0.1). With ``exp``,
    as Nauta et al. 2021 (ProtoTree), d = √(‖z − p‖² + 1e-14) and s = exp(−d). Distances are the matrix product
    ‖z‖² − 2⟨z, p⟩ + ‖p‖², which cancels: in training it is computed in float32, in evaluation, projection and phases
    that keep the prototypes fixed in float64 and less its rounding error, because an exact hit must score exactly
    ln(1/ε), or 1. Autocast never applies, and the result is float32.

    Args:
        metric: whether a matrix A, the identity at first, is applied to cells and vectors alike, so that vectors that
            are patches stay patches while A is trained.

    Example:
        >>> layer = PrototypeLayer(2, 3).eval()
        >>> z = layer.vectors.detach()[:1, :, None, None].expand(1, 3, 2, 2)
        >>> round(layer.similarities(layer.distances(z)).amax((2, 3))[0, 0].item(), 4)
        9.2103
    """

    sample_key: Tensor
    row: Tensor
    col: Tensor
    label: Tensor
    distance: Tensor
    box: Tensor
    active: Tensor
    projected: Tensor

    def __init__(
        self,
        num_prototypes: int,
        channels: int,
        similarity: Similarity = "l2_log",
        epsilon: float = 1e-4,
        metric: bool = False,
    ) -> None:
        super().__init__()
        check_choice("similarity", similarity, get_args(Similarity))
        if not 0 < epsilon < 1:
            raise ValueError(f"Expected argument `epsilon` to be above 0 and below 1, but got {epsilon}.")
        self.similarity = similarity
        self.epsilon = epsilon
        draw = torch.randn if self.by_direction else torch.rand  # all directions, or the range of a sigmoid
        self.vectors = nn.Parameter(draw(num_prototypes, channels))
        self.metric = nn.Conv2d(channels, channels, 1, bias=False) if metric else None
        if self.metric is not None:
            nn.init.dirac_(self.metric.weight)
        self.register_buffer("active", torch.ones(num_prototypes, dtype=torch.bool))
        self.register_buffer("projected", torch.tensor(False))
        empty = empty_sources(num_prototypes)
        for name in SOURCE_BUFFERS:
            self.register_buffer(name, getattr(empty, name))
        self.sample_id: list[str] = []  # until the first projection; on the host, so no device is read

    @property
    def by_direction(self) -> bool:
        """Whether cells are compared by their direction rather than by their place."""
        return self.similarity.startswith("cosine")

    def embed(self, features: Tensor) -> Tensor:
        """Latent ``(B, D, h, w)`` of features of the same shape."""
        if self.metric is None:
            return features
        with torch.autocast(features.device.type, enabled=False):
            latent: Tensor = self.metric(features.float())
        return latent

    def embedded(self) -> Tensor:
        """The prototypes ``(U, D)`` in the latent."""
        return self.vectors if self.metric is None else self.embed(self.vectors[:, :, None, None])[:, :, 0, 0]

    def distances(self, latent: Tensor, exact: bool | None = None, units: Tensor | None = None) -> Tensor:
        """Distances of every cell to every prototype, or to some.

        Args:
            latent: ``(B, D, h, w)`` float.
            exact: compute in float64; by default wherever the vectors are not being trained.
            units: ``(B, n)`` int64, n prototypes for each image; all of them if None.

        Returns:
            ``(B, U, h, w)``, or ``(B, n, h, w)``, float32, >= 0.
        """
        return self._compare(latent, lambda distances: distances, exact, units)

    def maps(self, latent: Tensor, units: Tensor | None = None) -> Tensor:
        """Similarities ``(B, U, h, w)`` of every cell to all or some prototypes, as exact as the distances."""
        return self._compare(latent, self.similarities, units=units)

    def _compare(
        self,
        latent: Tensor,
        finish: Callable[[Tensor], Tensor],
        exact: bool | None = None,
        units: Tensor | None = None,
    ) -> Tensor:
        """``finish`` applied to the distances elementwise; if exact, to a block of prototypes at a time."""
        with torch.autocast(latent.device.type, enabled=False):
            cells, vectors = latent.float(), self.embedded().float()
            if exact is None:
                exact = not (self.training and vectors.requires_grad)
            if self.by_direction:
                cells, vectors = self.directions(cells), self.directions(vectors)
            cells, shape = cells.flatten(2), cells.shape[2:]
            vectors = vectors if units is None else vectors[units]
            if not exact:
                norms = cells.square().sum(1, keepdim=True) + vectors.square().sum(-1, keepdim=True)
                squared = (norms - 2 * (vectors @ cells)).relu()  # not conv2d: TF32 is on there
                return finish(self._distances(squared)).reshape(*squared.shape[:2], *shape)
            cells = cells.double()
            norms = (1 - ROUNDING) * cells.square().sum(1, keepdim=True)
            cells = torch.cat([cells, norms, torch.ones_like(norms)], dim=1)
            blocks = torch.split(vectors, BLOCK if cells.device.type == "cpu" else DEVICE_BLOCK, dim=-2)
            whole = torch.cat([finish(self._distances(_squares(block, cells))) for block in blocks], dim=1)
            return whole.reshape(*whole.shape[:2], *shape)

    def directions(self, vectors: Tensor) -> Tensor:
        """Vectors ``(n, D, ...)`` of length 1, of prototypes or cells, whose inner products are cosines."""
        return F.normalize(vectors, dim=1)

    def _distances(self, squared: Tensor) -> Tensor:
        """Distances of squared Euclidean ones."""
        if self.similarity == "exp":
            return (squared + 1e-14).sqrt()
        return squared / 2 if self.by_direction else squared

    def similarities(self, distances: Tensor) -> Tensor:
        """Similarities of distances, elementwise; ``l2_log`` in (0, ln(1/ε)], the others in [0, 1]."""
        if self.similarity == "cosine":
            return (1 - distances).clamp_min(0)
        if self.similarity == "cosine_exp":
            return torch.exp(-distances / TEMPERATURE)
        if self.similarity == "exp":
            return torch.exp(-distances)
        return torch.log((distances + 1) / (distances + self.epsilon))

    def distances_at(self, similarities: Tensor) -> Tensor:
        """Distances at which ``l2_log`` has given similarities: (1 - ε exp(s)) / (exp(s) - 1), elementwise."""
        return (1 - self.epsilon * similarities.exp()) / torch.expm1(similarities)

    def source(self) -> SourceTable | None:
        """The sources of the prototypes, or None before the first projection."""
        if not self.sample_id:
            return None
        return SourceTable(sample_id=list(self.sample_id), **{n: getattr(self, n).clone() for n in SOURCE_BUFFERS})

    @torch.no_grad()
    def load_patches(self, patches: Tensor, valid: Tensor, source: SourceTable) -> None:
        """Copy patches ``(U, D)`` of the latent into the vectors where ``valid`` (U,), and store their source."""
        if self.metric is not None:
            patches = torch.linalg.solve(self.metric.weight[:, :, 0, 0].double(), patches.double().T).T
        self.vectors.copy_(torch.where(valid[:, None], patches.to(self.vectors), self.vectors))
        for name in SOURCE_BUFFERS:
            getattr(self, name).copy_(getattr(source, name))
        self.sample_id = list(source.sample_id)
        self.projected.fill_(True)

    def get_extra_state(self) -> dict[str, Any]:
        """The source ids, which are text and therefore not a buffer."""
        return {"sample_id": self.sample_id}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore the source ids."""
        self.sample_id = list(state["sample_id"]) if self.projected else []


class ComparesPatches:
    """The common part of models whose prototypes are compared with every cell of an add-on behind the backbone."""

    backbone: Backbone
    addon: nn.Module
    prototypes: PrototypeLayer

    def embed(self, images: Tensor) -> Tensor:
        """Latent ``(B, D, h, w)`` of images, in which prototypes are compared."""
        return self.prototypes.embed(self.addon(self.backbone(images)))

    def pool(self, maps: Tensor) -> Tensor:
        """Scores ``(B, U)`` of maps ``(B, U, h, w)``, including inactive prototypes."""
        return maps.amax(dim=(2, 3))

    def unit_scores(self, images: Tensor, units: Tensor) -> Tensor:
        """Scores ``(B, k)`` of the given prototypes ``(B, k)`` of each image only."""
        return self.pool(self.prototypes.maps(self.embed(images), units)) * self.prototypes.active[units]

    def distance_maps(self, latent: Tensor, units: Tensor | None = None) -> Tensor:
        """Exact distances ``(B, U, h, w)`` of every cell to every prototype, or to the units of each image."""
        return self.prototypes.distances(latent, exact=True, units=units)

    def load_patches(self, patches: Tensor, valid: Tensor, source: SourceTable) -> None:
        """Replace the prototypes by latent patches of training images."""
        self.prototypes.load_patches(patches, valid, source)


def _squares(vectors: Tensor, cells: Tensor) -> Tensor:
    """Squared distances ``(B, n, S)``, less :data:`ROUNDING` times both squared norms, as one matrix product."""
    vectors = vectors.double()
    norms = (1 - ROUNDING) * vectors.square().sum(-1, keepdim=True)
    return (torch.cat([-2 * vectors, torch.ones_like(norms), norms], dim=-1) @ cells).float().relu()
