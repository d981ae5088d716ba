"""How well the maps of the concepts that decide cover the part that the concept is about."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from protometry.metrics.base import ImageRatio
from protometry.metrics.concepts.maps import check_parts, region_size, upsampled
from protometry.metrics.concepts.ranked_concepts import (
    Order,
    RankedConcepts,
    Ranking,
    most_important,
    named_weight,
    ranked_entry,
)
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_range, check_tensor
from protometry.metrics.primitives.ranking import gather_units
from protometry.metrics.primitives.upsample import Lattice


def concept_mask_intersection_over_union(
    maps: Tensor,
    part_masks: Tensor,
    image_size: tuple[int, int],
    alpha: float = 1.0,
    lattice: Lattice | None = None,
) -> Tensor:
    """Intersection over union of the highest pixels of the map of a concept with the part it is about.

    Source: Aysel et al. (2025), section 3.4, name it as the rigorous check but lack the masks. The region is defined as
    in :func:`protometry.metrics.functional.concept_location`; each of the equally high pixels that complete it counts
    with the probability of being chosen.

    Args:
        maps: ``(B, k, h, w)`` float, one map per concept.
        part_masks: ``(B, k, H, W)`` bool, the visible pixels of the concept's part.
        image_size: ``(H, W)`` pixels.
        alpha: size of the region, above 0 and at most 12.
        lattice: as of :func:`~protometry.metrics.primitives.upsample.upsample_maps`.

    Returns:
        ``(B, k)`` float64 in [0, 1], higher is better; NaN for an empty mask or region and a map that is not finite.
    """
    check_tensor("maps", maps, ("B", "k", "h", "w"), "float")
    check_tensor("part_masks", part_masks, (*maps.shape[:2], *image_size), "bool")
    size = region_size(image_size, alpha)
    values = [
        _soft_overlap(pixels, tolerance, masks, size)
        for pixels, tolerance, masks in upsampled(
            maps, image_size, part_masks.flatten(2).flatten(0, 1), lattice=lattice
        )
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


class ConceptMaskIntersectionOverUnion(RankedConcepts, ImageRatio):
    """Mean overlap of the maps of the k most important concepts of decisions with their parts (higher is better).

    The mean over all pairs of an image and one of its k most important concepts whose part has a mask and is in sight.
    Its baseline is ``chance``, ``a m / (a + m - a m)`` with the shares of the image a of the region and m of the mask,
    which a random region of the same size has.

    Args:
        concept_parts: ``(L,)`` int64, the mask of each concept's part, -1 for none.

    Example:
        >>> metric = ConceptMaskIntersectionOverUnion(torch.ones(1, 1), torch.tensor([0]), k=1)
        >>> maps = torch.zeros(1, 1, 4, 6)
        >>> maps[0, 0, 0, :2] = 1
        >>> metric.update(torch.ones(1, 1), torch.zeros(1, 1), maps, maps > 0)
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    compared: ClassVar = ("chance",)
    concept_parts: Tensor

    def __init__(
        self,
        weight: Tensor,
        concept_parts: Tensor,
        k: int = 5,
        alpha: float = 1.0,
        ranking: Ranking = "contribution",
        order: Order = "signed",
        **kwargs: Any,
    ) -> None:
        check_tensor("concept_parts", concept_parts, (weight.shape[1],), "int64")
        check_range("concept_parts", concept_parts, -1, math.inf)
        super().__init__(weight=weight, k=k, ranking=ranking, order=order, candidates=concept_parts >= 0, **kwargs)
        region_size((1, 1), alpha)
        self.alpha = alpha
        self.num_parts = int(concept_parts.max()) + 1  # at least
        self.register_buffer("concept_parts", concept_parts.clone(), persistent=False)

    def update(
        self,
        scores: Tensor,
        logits: Tensor,
        concept_maps: Tensor,
        part_masks: Tensor,
        lattice: Lattice | None = None,
    ) -> None:
        check_tensor("logits", logits, ("B", len(self.weight)), "float")
        images = len(logits)
        check_tensor("concept_maps", concept_maps, (images, self.weight.shape[1], "h", "w"), "float")
        check_tensor("part_masks", part_masks, (images, "G", "H", "W"), "bool")
        check_parts("part_masks", part_masks.shape[1], self.num_parts)
        ids, eligible = most_important(self._importance(scores, logits.argmax(dim=1)), self.k)
        rows = torch.arange(images, device=ids.device)[:, None]
        masks = part_masks[rows, self.concept_parts[ids].clamp(min=0)] & eligible[:, :, None, None]
        image_size = (part_masks.shape[2], part_masks.shape[3])
        maps = gather_units(concept_maps, ids)
        values = concept_mask_intersection_over_union(maps, masks, image_size, self.alpha, lattice)
        self._accumulate(values.nan_to_num().sum(dim=1), (~values.isnan()).sum(dim=1))
        share, area = region_size(image_size, self.alpha) / math.prod(image_size), masks.double().mean(dim=(2, 3))
        chance = (share * area / (share + area - share * area)).masked_fill(values.isnan(), torch.nan)
        self._compare(values, chance[None])


_MISREAD = {
    1: "The region has a fixed size: a smaller or larger part keeps the value below 1, however good the map.",
    3: "Compare with `chance`, a random region of this size, not with 0.",
    5: "Only for data with part masks.",
}


def overlap_entry(k: int, ranking: Ranking, order: Order, alpha: float) -> MetricEntry:
    """The entry of one ranking and size of the region."""
    return ranked_entry(
        f"part_iou@{k}",
        (alpha, ranking, order),
        ConceptMaskIntersectionOverUnion,
        Words(
            question="How well do they cover their part?",
            name=f"Concept overlap @{k}",
            formula="mean IoU of the HW / 12 highest pixels of the map with the mask of the part, same "
            f"concept{'' if k == 1 else 's'}",
            source="[A25] 3.4",
            misread=_MISREAD[k],
        ),
        lambda facts: ConceptMaskIntersectionOverUnion(
            named_weight(facts), facts.concept_masks, k, alpha, ranking, order
        ),
        needs=("label_map", f"masked@{k}"),
    )
