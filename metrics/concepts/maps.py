"""Where the map of a concept is high, and whether the part that the concept is about lies there."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from metrics.primitives.checks import check_tensor
from metrics.primitives.chunks import image_chunks

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

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> latent = torch.tensor([[[[1.0, 0.0]], [[0.0, 2.0]]]])
        >>> concept_activation_maps(latent, torch.tensor([[1.0, 3.0]]))
        tensor([[[[0.5000, 3.0000]]]])
    """
    check_tensor("latent", latent, ("B", "D", "h", "w"), "float")
    check_tensor("concept_vectors", concept_vectors, ("L", latent.shape[1]), "float")
    return torch.einsum("ld,bdij->blij", concept_vectors, latent) / latent.shape[1]


def concept_location(
    maps: Tensor, points: Tensor, visible: Tensor, image_size: tuple[int, int], alpha: float = 1.0
) -> Tensor:
    """Whether the point of a part lies among the highest pixels of the map of a concept.

    Source: Aysel et al. (2025), equation 11 and section 4.4: the region of a map is its ``⌊alpha H W / 12⌋`` highest
    pixels, after bilinear upsampling. Of pixels that are equally high a random choice completes the region: the value
    is the probability that the point's pixel is in it. Of several sides of a part the best one counts.

    Args:
        maps: ``(B, k, h, w)`` float, one map per concept.
        points: ``(B, k, S, 2)`` float pixels (x, y) of the S sides of the concept's part.
        visible: ``(B, k, S)`` bool; a point outside the image never is.
        image_size: ``(H, W)`` pixels.
        alpha: size of the region, above 0 and at most 12.

    Returns:
        ``(B, k)`` float64 in [0, 1], higher is better; NaN without a visible side and for a map that is not finite.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> maps = torch.zeros(1, 1, 4, 6)
        >>> maps[0, 0, 0] = torch.tensor([9.0, 5.0, 5.0, 5.0, 5.0, 0.0])
        >>> point, visible = torch.tensor([[[[1.5, 0.5]]]]), torch.tensor([[[True]]])  # on a 5; the region has 2 pixels
        >>> concept_location(maps, point, visible, (4, 6))
        tensor([[0.2500]], dtype=torch.float64)
    """
    higher, equal = point_ranks(maps, points, visible, image_size)
    return best_side(credit(higher, equal, region_size(image_size, alpha)))


def point_ranks(maps: Tensor, points: Tensor, visible: Tensor, image_size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """How many pixels of an upsampled map are higher than the pixel of a point, and how many are equally high.

    Args:
        maps: ``(B, k, h, w)`` float.
        points: ``(B, k, S, 2)`` float pixels (x, y).
        visible: ``(B, k, S)`` bool.
        image_size: ``(H, W)`` pixels.

    Returns:
        Two ``(B, k, S)`` float64 counts; NaN where the point is not visible or lies outside the image, and for a map
        that is not finite. Upsampled maps are held in chunks of 2^18 elements on a CPU.
    """
    check_tensor("maps", maps, ("B", "k", "h", "w"), "float")
    check_tensor("visible", visible, (*maps.shape[:2], "S"), "bool")
    check_tensor("points", points, (*visible.shape, 2), "float")
    height, width = image_size
    column, row = points.floor().unbind(dim=-1)
    inside = visible & (row >= 0) & (row < height) & (column >= 0) & (column < width)
    pixel = (row * width + column).masked_fill(~inside, 0).long().flatten(0, 1)
    counts = []
    for values, tolerance, places in upsampled(maps, image_size, pixel, at_once=3):
        own = values.gather(1, places)
        below = (own - tolerance).nextafter(own.new_full((), -torch.inf))  # x >= own - tolerance is x > below
        higher, as_high = numbers_above(values, torch.cat([own + tolerance, below], dim=1)).chunk(2, dim=1)
        found = torch.stack([higher, as_high - higher]).double()
        counts.append(found.masked_fill(~own.isfinite(), torch.nan))
    higher, equal = torch.cat(counts, dim=1).view(2, *visible.shape).unbind()
    return higher.masked_fill(~inside, torch.nan), equal.masked_fill(~inside, torch.nan)


def numbers_above(values: Tensor, bounds: Tensor) -> Tensor:
    """How many values of each row are above each of its bounds.

    Args:
        values: ``(M, n)`` float.
        bounds: ``(M, P)`` float.

    Returns:
        ``(M, P)`` int64.

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
    maps: Tensor, image_size: tuple[int, int], other: Tensor, at_once: int = 1
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Maps at the size of the image, some at a time: ``(M, HW)`` float64 values, ``(M, 1)`` tolerance, rows of other.

    Of a map with any value that is not finite all are NaN. ``at_once`` is how many copies of a map the caller holds.
    """
    cells = maps.detach().double().flatten(0, 1)
    cells = cells.masked_fill(~cells.isfinite().all(dim=2, keepdim=True).all(dim=1, keepdim=True), torch.nan)
    held = cells.new_empty(1, 1).expand(len(cells), math.prod(image_size) * at_once)
    for part, _, rows in image_chunks(cells, held, other):
        values = F.interpolate(part[:, None], image_size, mode="bilinear", align_corners=False).flatten(1)
        yield values, _EQUAL * values.abs().amax(dim=1, keepdim=True), rows


def region_size(image_size: tuple[int, int], alpha: float) -> int:
    """Pixels of the region of a map: ``⌊alpha H W / 12⌋``.

    Raises:
        ValueError: if ``alpha`` is not above 0 and at most 12, the whole image.
    """
    if not 0 < alpha <= PARTS_PER_IMAGE:
        raise ValueError(f"Expected argument `alpha` to be above 0 and at most {PARTS_PER_IMAGE}, but got {alpha}.")
    return math.floor(alpha * math.prod(image_size) / PARTS_PER_IMAGE)


def credit(higher: Tensor, equal: Tensor, size: int) -> Tensor:
    """Probability that a pixel is in the region of ``size`` pixels, given what :func:`point_ranks` returns."""
    return ((size - higher) / equal).clamp(0, 1)


def best_side(values: Tensor) -> Tensor:
    """Largest of the last axis, without NaN; NaN if there is nothing else."""
    return values.nan_to_num(nan=-torch.inf).amax(dim=-1).masked_fill(values.isnan().all(dim=-1), torch.nan)


def concept_mask_intersection_over_union(
    maps: Tensor, part_masks: Tensor, image_size: tuple[int, int], alpha: float = 1.0
) -> Tensor:
    """Intersection over union of the highest pixels of the map of a concept with the part it is about.

    Source: Aysel et al. (2025), section 3.4, name it the rigorous check and lack the masks. The region is that of
    :func:`concept_location`; each of the equally high pixels that complete it counts with the probability of being
    chosen.

    Args:
        maps: ``(B, k, h, w)`` float, one map per concept.
        part_masks: ``(B, k, H, W)`` bool, the visible pixels of the concept's part.
        image_size: ``(H, W)`` pixels.
        alpha: size of the region, above 0 and at most 12.

    Returns:
        ``(B, k)`` float64 in [0, 1], higher is better; NaN for an empty mask or region and a map that is not finite.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> maps, masks = torch.zeros(1, 1, 4, 6), torch.zeros(1, 1, 4, 6, dtype=torch.bool)
        >>> maps[0, 0, 0, :2], masks[0, 0, 0, 1:3] = 1, True
        >>> concept_mask_intersection_over_union(maps, masks, (4, 6))  # 1 pixel of 3
        tensor([[0.3333]], dtype=torch.float64)
    """
    check_tensor("maps", maps, ("B", "k", "h", "w"), "float")
    check_tensor("part_masks", part_masks, (*maps.shape[:2], *image_size), "bool")
    size = region_size(image_size, alpha)
    values = [
        _soft_overlap(pixels, tolerance, masks, size)
        for pixels, tolerance, masks in upsampled(maps, image_size, part_masks.flatten(2).flatten(0, 1))
    ]
    return torch.cat(values).view(maps.shape[:2])


def _soft_overlap(pixels: Tensor, tolerance: Tensor, masks: Tensor, size: int) -> Tensor:
    """``(M,)`` of ``(M, HW)`` pixels and masks."""
    if size == 0:
        return pixels.new_full((len(pixels),), torch.nan)
    lowest = pixels.topk(size, dim=1).values[:, -1:]
    higher = pixels > lowest + tolerance
    equal = (pixels >= lowest - tolerance) & ~higher
    share = (size - higher.sum(dim=1)).double() / equal.sum(dim=1)
    area = masks.sum(dim=1)
    both = (higher & masks).sum(dim=1) + share * (equal & masks).sum(dim=1)
    undefined = (area == 0) | tolerance.isnan().squeeze(1)
    return (both / (size + area - both)).masked_fill(undefined, torch.nan)
