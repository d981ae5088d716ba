"""Whether the maps of the deciding concepts are high at the part that the concept is about."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from protometry.metrics.base import ImageRatio
from protometry.metrics.concepts.maps import best_side, check_parts, credit, point_ranks, region_size
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


def concept_location(
    maps: Tensor,
    points: Tensor,
    visible: Tensor,
    image_size: tuple[int, int],
    alpha: float = 1.0,
    lattice: Lattice | None = None,
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
        lattice: as of :func:`~protometry.metrics.primitives.upsample.upsample_maps`.

    Returns:
        ``(B, k)`` float64 in [0, 1], higher is better; NaN without a visible side, for a map that is not finite and
        for a region without a pixel.

    Example:
        >>> maps = torch.zeros(1, 1, 4, 6)
        >>> maps[0, 0, 0] = torch.tensor([9.0, 5.0, 5.0, 5.0, 5.0, 0.0])
        >>> point, visible = torch.tensor([[[[1.5, 0.5]]]]), torch.tensor([[[True]]])  # on a 5; the region has 2 pixels
        >>> concept_location(maps, point, visible, (4, 6))
        tensor([[0.2500]], dtype=torch.float64)
    """
    higher, equal = point_ranks(maps, points, visible, image_size, lattice)
    return best_side(credit(higher, equal, region_size(image_size, alpha)))


ALPHAS = tuple(range(1, 13))  # of the curve


class ConceptLocation(RankedConcepts, ImageRatio):
    """Share of the k most important concepts of decisions whose map is high where their part is (higher is better).

    The mean over all pairs of an image and one of its k most important concepts whose part, or a side of it, is in
    sight. ``summary`` adds ``image_mean``, the mean over images, and ``curve_a1`` to ``curve_a12``, the value at every
    alpha. Its baselines are ``chance``, a random region of the same size, which any of m visible sides may hit, and
    ``other_parts``, the same map against the other parts in sight.

    Args:
        concept_parts: ``(L, S)`` int64, the points of the concept's part, one for each side, padded with -1; a row of
            -1 for a concept without a part.

    Inputs:
        concept_maps: ``(B, L, h, w)`` float; a positive factor or an offset of a map changes nothing.

    Example:
        >>> metric = ConceptLocation(torch.ones(1, 1), torch.tensor([[0]]), k=1)
        >>> maps = torch.zeros(1, 1, 4, 6)
        >>> maps[0, 0, 2, 3] = 1
        >>> point, visible = torch.tensor([[[3.5, 2.5]]]), torch.tensor([[True]])
        >>> metric.update(torch.ones(1, 1), torch.zeros(1, 1), maps, point, visible, (4, 6))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    compared: ClassVar = ("chance", "other_parts")
    concept_parts: Tensor
    parts: Tensor
    part_of: Tensor
    curve_sums: Tensor
    image_mean_sum: Tensor

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
        check_tensor("concept_parts", concept_parts, (weight.shape[1], "S"), "int64")
        check_range("concept_parts", concept_parts, -1, math.inf)
        candidates = (concept_parts >= 0).any(dim=1)
        super().__init__(weight=weight, k=k, ranking=ranking, order=order, candidates=candidates, **kwargs)
        region_size((1, 1), alpha)
        self.alpha = alpha
        self.num_parts = int(concept_parts.max()) + 1  # at least
        rows = concept_parts.tolist()
        parts = sorted(map(list, {tuple(row) for row in rows}))
        self.register_buffer("parts", concept_parts.new_tensor(parts), persistent=False)
        self.register_buffer("part_of", concept_parts.new_tensor([parts.index(row) for row in rows]), persistent=False)
        self.add_state("curve_sums", torch.zeros(len(ALPHAS), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("image_mean_sum", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(  # noqa: PLR0913 - what it reads of a view
        self,
        scores: Tensor,
        logits: Tensor,
        concept_maps: Tensor,
        part_locations: Tensor,
        part_visible: Tensor,
        image_size: tuple[int, int],
        lattice: Lattice | None = None,
    ) -> None:
        check_tensor("logits", logits, ("B", len(self.weight)), "float")
        images = len(logits)
        check_tensor("concept_maps", concept_maps, (images, self.weight.shape[1], "h", "w"), "float")
        check_tensor("part_locations", part_locations, (images, "N", 2), "float")
        check_tensor("part_visible", part_visible, (images, part_locations.shape[1]), "bool")
        check_parts("part_locations", part_locations.shape[1], self.num_parts)
        ids, eligible = most_important(self._importance(scores, logits.argmax(dim=1)), self.k)
        sides = self.parts.clamp(min=0).flatten()  # of all parts: G * S
        points = part_locations[:, sides][:, None].expand(-1, self.k, -1, -1)
        visible = (part_visible[:, sides] & (self.parts >= 0).flatten())[:, None] & eligible[:, :, None]
        ranks = point_ranks(gather_units(concept_maps, ids), points, visible, image_size, lattice)
        higher, equal = (rank.view(images, self.k, *self.parts.shape) for rank in ranks)  # (B, k, G, S)
        self._add(higher, equal, self.part_of[ids], image_size)

    def _add(self, higher: Tensor, equal: Tensor, part: Tensor, image_size: tuple[int, int]) -> None:
        """Add the ranks of the sides of all parts on the maps of concepts whose part is ``part`` (B, k)."""
        size = region_size(image_size, self.alpha)
        is_own = part[:, :, None] == torch.arange(len(self.parts), device=part.device)
        of_parts = best_side(credit(higher, equal, size))  # (B, k, G)
        own, others = of_parts.gather(2, part[:, :, None])[:, :, 0], of_parts.masked_fill(is_own, torch.nan)
        count = (~own.isnan()).sum(dim=1)
        total = own.nan_to_num().sum(dim=1)
        self._accumulate(total, count)
        self.image_mean_sum = self.image_mean_sum + (total / count).nan_to_num().sum()
        missed = 1 - size / math.prod(image_size)
        in_sight = (~higher.isnan()).sum(dim=3).gather(2, part[:, :, None])[:, :, 0]
        chance = (1 - missed ** in_sight.double()).masked_fill(own.isnan(), torch.nan)
        baselines = torch.stack([chance, others.nanmean(dim=2).masked_fill(own.isnan(), torch.nan)])
        self._compare(own, baselines)
        index = part[:, :, None, None].expand(-1, -1, 1, self.parts.shape[1])
        own_higher, own_equal = (rank.gather(2, index)[:, :, 0] for rank in (higher, equal))
        sizes = [region_size(image_size, alpha) for alpha in ALPHAS]
        curves = [best_side(credit(own_higher, own_equal, each)) for each in sizes]
        curve = [values.masked_fill(own.isnan(), 0).sum() for values in curves]  # NaN where only this region is empty
        self.curve_sums = self.curve_sums + torch.stack(curve)

    def _additions(self) -> dict[str, Any]:
        image_mean = float(self.image_mean_sum / self.image_count)
        curve = zip(ALPHAS, (self.curve_sums / self.sums[1]).tolist(), strict=True)
        return super()._additions() | {"image_mean": image_mean} | {f"curve_a{alpha}": value for alpha, value in curve}


_MISREAD = {
    1: "Chance is 1/12 for one visible side and 16 % for two: read `lift_over_chance`.",
    3: "A map of the whole bird hits many parts: read `lift_over_other_parts`.",
    5: "Upsampled cells say where a cell lies, not what it saw.",
}


def location_entry(k: int, ranking: Ranking, order: Order, alpha: float) -> MetricEntry:
    """The entry of one ranking and size of the region."""
    return ranked_entry(
        f"clm@{k}",
        (alpha, ranking, order),
        ConceptLocation,
        Words(
            question="Do the concepts that decided look where their part is?",
            name=f"Concept location @{k}",
            formula=f"share of the {k} most important concept{'' if k == 1 else 's'} with a part whose point lies "
            "among the HW / 12 highest pixels of their map",
            source="[A25] 11",
            misread=_MISREAD[k],
        ),
        lambda facts: ConceptLocation(named_weight(facts), facts.concept_points, k, alpha, ranking, order),
        needs=("part_points", f"located@{k}"),
    )
