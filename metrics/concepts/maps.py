"""Maps of concepts: where they are high, and how high a pixel ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from protometry.metrics.primitives.checks import check_image_size, check_tensor
from protometry.metrics.primitives.chunks import image_chunks
from protometry.metrics.primitives.upsample import Lattice, upsample_maps

PARTS_PER_IMAGE = 12  # a region of alpha = 1 is the share of one of twelve parts (Aysel et al. 2025)
_EQUAL = 1e-9  # of the largest magnitude of a map: values closer than that are equal


def concept_activation_maps(latent: Tensor, concept_vectors: Tensor) -> Tensor:
    """Concept activation maps (CoAM): the latent weighed by the vector of each concept.

    Source: Aysel et al. (2025), equation 2: ``F_l = (1 / D) Σ_d c_ld E_d``, without ReLU or scaling, so that D times
    the mean of a map is ``⟨c_l, mean over cells of E⟩``.

    Args:
        latent: ``(B, D, h, w)`` float E.
        concept_vectors: ``(L, D)`` float c.

    Returns:
        ``(B, L, h, w)`` float, signed.

    Example:
        >>> latent = torch.tensor([[[[1.0, 0.0]], [[0.0, 2.0]]]])
        >>> concept_activation_maps(latent, torch.tensor([[1.0, 3.0]]))
        tensor([[[[0.5000, 3.0000]]]])
    """
    check_tensor("latent", latent, ("B", "D", "h", "w"), "float")
    check_tensor("concept_vectors", concept_vectors, ("L", latent.shape[1]), "float")
    return torch.einsum("ld,bdij->blij", concept_vectors, latent) / latent.shape[1]


def region_size(image_size: tuple[int, int], alpha: float) -> int:
    """Pixels of the region of a map: ``⌊alpha H W / 12⌋``."""
    if not 0 < alpha <= PARTS_PER_IMAGE:
        raise ValueError(f"Expected argument `alpha` to be above 0 and at most {PARTS_PER_IMAGE}, but got {alpha}.")
    return math.floor(alpha * math.prod(image_size) / PARTS_PER_IMAGE)


def point_ranks(
    maps: Tensor, points: Tensor, visible: Tensor, image_size: tuple[int, int], lattice: Lattice | None = None
) -> tuple[Tensor, Tensor]:
    """How many pixels of an upsampled map are higher than the pixel of a point, and how many are equally high.

    Args:
        maps: ``(B, k, h, w)`` float.
        points: ``(B, k, S, 2)`` float pixels (x, y).
        visible: ``(B, k, S)`` bool.
        image_size: ``(H, W)`` pixels.
        lattice: as of :func:`~protometry.metrics.primitives.upsample.upsample_maps`.

    Returns:
        Two ``(B, k, S)`` float64 counts; NaN where the point is not visible or lies outside the image, and for a map
        that is not finite. Upsampled maps are held in chunks of 2^18 elements on a CPU.
    """
    check_tensor("maps", maps, ("B", "k", "h", "w"), "float")
    check_tensor("visible", visible, (*maps.shape[:2], "S"), "bool")
    check_tensor("points", points, (*visible.shape, 2), "float")
    check_image_size(image_size)
    height, width = image_size
    column, row = points.floor().unbind(dim=-1)
    inside = visible & (row >= 0) & (row < height) & (column >= 0) & (column < width)
    pixel = (row * width + column).masked_fill(~inside, 0).long().flatten(0, 1)
    counts = []
    for values, tolerance, index in upsampled(maps, image_size, pixel, 3, lattice):
        own = values.gather(1, index)
        below = (own - tolerance).nextafter(own.new_full((), -torch.inf))  # x >= own - tolerance is x > below
        higher, as_high = numbers_above(values, torch.cat([own + tolerance, below], dim=1)).chunk(2, dim=1)
        ranks = torch.stack([higher, as_high - higher]).double()
        counts.append(ranks.masked_fill(~own.isfinite(), torch.nan))
    higher, equal = torch.cat(counts, dim=1).view(2, *visible.shape).unbind()
    return higher.masked_fill(~inside, torch.nan), equal.masked_fill(~inside, torch.nan)


def numbers_above(values: Tensor, bounds: Tensor) -> Tensor:
    """How many of the ``(M, n)`` values of each row are above each of its ``(M, P)`` bounds, ``(M, P)`` int64.

    Example:
        >>> numbers_above(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[2.0, 0.0]]))
        tensor([[1, 3]])
    """
    ascending, order = bounds.sort(dim=1)
    passed = torch.searchsorted(ascending, values)  # bounds that each value is above
    numbers = passed.new_zeros(len(bounds), bounds.shape[1] + 1)
    numbers.scatter_add_(1, passed, passed.new_ones(1, 1).expand_as(passed))
    above = numbers.flip(1).cumsum(dim=1).flip(1)[:, 1:]  # values above at least so many bounds
    return torch.empty_like(above).scatter_(1, order, above)


def upsampled(
    maps: Tensor, image_size: tuple[int, int], other: Tensor, at_once: int = 1, lattice: Lattice | None = None
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Maps at the size of the image, some at a time: ``(M, HW)`` float64 values, ``(M, 1)`` tolerance, rows of other.

    Of a map with any value that is not finite all are NaN. ``at_once`` is how many copies of a map the caller holds.
    """
    cells = maps.detach().double().flatten(0, 1)
    cells = cells.masked_fill(~cells.isfinite().all(dim=2, keepdim=True).all(dim=1, keepdim=True), torch.nan)
    held = cells.new_empty(1, 1).expand(len(cells), math.prod(image_size) * at_once)
    for part, _, rows in image_chunks(cells, held, other):
        values = upsample_maps(part, image_size, "bilinear", lattice).flatten(1)
        yield values, _EQUAL * values.abs().amax(dim=1, keepdim=True), rows


def credit(higher: Tensor, equal: Tensor, size: int) -> Tensor:
    """Probability that a pixel is in the region of ``size`` pixels, from :func:`point_ranks`; NaN if there are none."""
    return ((size - higher) / equal).clamp(0, 1) if size else torch.full_like(higher, torch.nan)


def check_parts(name: str, parts: int, least: int) -> None:
    """Refuse data with fewer parts than concepts are about, with a ``ValueError``."""
    if parts < least:
        raise ValueError(f"Expected argument `{name}` to hold the {least} parts of the concepts, but got {parts}.")


def best_side(values: Tensor) -> Tensor:
    """Largest of the last axis, without NaN; NaN if there is nothing else."""
    return values.nan_to_num(nan=-torch.inf).amax(dim=-1).masked_fill(values.isnan().all(dim=-1), torch.nan)
