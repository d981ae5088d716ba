"""All views of an image that metrics can ask for: the clean one, and the image under each perturbation.

A view of the perturbed image also has all fields of the clean one (:mod:`protometry.callbacks.evaluation.clean_view`).
Fields have the names and shapes of the ``update`` arguments in ``metrics``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial, reduce
from operator import or_
from typing import Any, cast

import torch
from torch import Tensor

from protometry.callbacks.evaluation.clean_view import Clean, View, scaled
from protometry.callbacks.evaluation.sanity_views import Exchanged, Place, Randomised, Removal, Shortcut
from protometry.callbacks.forward.observer import Attack, Images
from protometry.lightning_modules.contract import Intervenable, Values, logits_of
from protometry.metrics.alignment.part_stability import DRAWS
from protometry.metrics.functional import (
    bounding_boxes,
    clip_saliency,
    completeness_perturbation,
    group_uncertainty,
    intervention_masks,
    keyed_noise,
    keyed_uniform,
    percentile_mask,
)
from protometry.metrics.intervention.corrections import CORRECTIONS, Correction
from protometry.metrics.primitives.upsample import upsample_maps
from protometry.metrics.sanity.randomisation import STAGES

# Uses of noise that must not repeat each other's draws; user seeds are far smaller.
STABILITY_SEED, MISALIGNMENT_SEED, INTERVENTION_SEED = 1 << 40, 2 << 40, 3 << 40
SPARSE_HEADS, TCAV = "sparse_heads", "tcav"


class Clipped(View):
    """The clean image, with the saliency clipped."""

    @property
    def saliency(self) -> Tensor:
        """``(B, k, H, W)`` float >= 0."""
        return self.clean.clipped_saliency


class Localisation(View):
    """The clean image, with the filled bounding box instead of a missing object mask."""

    @cached_property
    def object_masks(self) -> Tensor:
        """``(B, H, W)`` bool."""
        if "object_mask" in self.clean.batch:
            return self.clean.object_masks
        return inside(self.clean.batch["bounding_box"], self.clean.image_size)


class Concepts(View):
    """The clean image, restricted to the units that stand for a concept, and to their concepts."""

    @property
    def scores(self) -> Tensor:
        """``(B, M)`` of the named units."""
        return self.clean.scores[:, self.clean.setting.named]

    @cached_property
    def concept_maps(self) -> Tensor:
        """``(B, M, h, w)`` of the named units."""
        assert self.clean.outputs.all_maps is not None
        return self.clean.outputs.all_maps[:, self.clean.setting.named]

    @property
    def concept_labels(self) -> Tensor:
        """``(B, M)``, whether the image has the concept of each named unit, as from :func:`.truth_of`."""
        return self.clean.concept_labels[:, self.clean.setting.concepts]

    @cached_property
    def part_masks(self) -> Tensor:
        """``(B, G, H, W)`` bool, the visible pixels of every group of parts; none of one without codes."""
        label_map: Tensor = self.clean.batch["label_map"]
        none = torch.zeros_like(label_map, dtype=torch.bool)
        groups = self.clean.setting.facts.part_codes
        return torch.stack([reduce(or_, (label_map == code for code in codes), none) for codes in groups], dim=1)


class Completeness(Clipped):
    """One image per top unit, with noise everywhere but in the box around the unit's region."""

    def __init__(self, clean: Clean) -> None:
        super().__init__(clean)
        setting, images, unit_ids = clean.setting, clean.images, clean.unit_ids
        boxes = bounding_boxes(clean.clipped_saliency > 0)
        quanproto = setting.facts.variant == "quanproto"
        sigma = setting.noise * clean.model.input_std if quanproto else setting.noise
        noisy = completeness_perturbation(
            images.pixels, boxes, images.keys, sigma, setting.seed, clamp=not quanproto
        ).flatten(0, 1)
        k = unit_ids.shape[1]
        names = [name for name in images.names for _ in range(k)]
        self.valid = (unit_ids >= 0) & (boxes[..., 2] >= 0)
        self._seen = clean.observer.see(
            Images(noisy, images.keys.repeat_interleave(k), names),
            unit_ids.reshape(-1, 1),
            explain="perturbed_saliency" in setting.fields,
        )

    @property
    def perturbed_scores(self) -> Tensor:
        """``(B, k, U)``: one perturbed image per unit."""
        return self._seen.scores.view(*self.clean.unit_ids.shape, -1)

    @property
    def perturbed_maps(self) -> Tensor:
        """``(B, k, h, w)`` of the same unit."""
        return self._seen.maps.view_as(self.clean.maps)

    @cached_property
    def perturbed_saliency(self) -> Tensor:
        """``(B, k, H, W)``, clipped."""
        assert self._seen.saliency is not None
        return clip_saliency(self._seen.saliency).view_as(self.saliency)


class Continuity(View):
    """The colour-augmented view of the image, made by the data module."""

    def __init__(self, clean: Clean) -> None:
        super().__init__(clean)
        images = Images(clean.batch["second_view"], clean.images.keys, clean.images.names)
        outputs = clean.observer.see(images, clean.unit_ids)
        self.perturbed_logits, self.perturbed_scores, self.perturbed_maps = outputs.logits, outputs.scores, outputs.maps


class Stability(View):
    """The image under one draw of noise: sd 0.2, clipped to 0.25, in normalised units (Huang et al. 2023)."""

    def __init__(self, clean: Clean, draw: int) -> None:
        super().__init__(clean)
        images, setting = clean.images, clean.setting
        ranks = torch.full_like(images.keys, draw)[:, None]
        noise = keyed_noise(images.keys, ranks, tuple(images.pixels.shape[1:]), setting.seed + STABILITY_SEED)[:, 0]
        noisy = images.pixels + (0.2 * noise).clamp(-0.25, 0.25) * clean.model.input_std
        outputs = clean.observer.see(Images(noisy, images.keys, images.names), clean.unit_ids, keep_maps=True)
        assert outputs.all_maps is not None
        self.perturbed_owned_peaks = clean.peaks_of(outputs.all_maps)
        self.perturbed_random_peaks = clean.random_peaks_of(1 + draw)


class Misalignment(View):
    """The image attacked outside the region of its best unit (Sacha et al. 2024).

    Args:
        steps: of the attack; with 0 the random start alone, which is what the released code measures.
    """

    def __init__(self, clean: Clean, steps: int) -> None:
        super().__init__(clean)
        images, std = clean.images, clean.model.input_std
        best, layout = clean.maps[:, 0], (clean.image_size, clean.lattice)
        box = bounding_boxes(percentile_mask(upsample_maps(best, layout[0], "bicubic", layout[1])))
        has_region = (clean.unit_ids[:, 0] >= 0) & (box[:, 2] >= 0)
        margin = scaled(10, clean.image_size)
        free = ~inside(torch.cat([box[:, :2] - margin, box[:, 2:] + margin], dim=1), clean.image_size)
        epsilon = 0.4 * std
        rank = torch.zeros_like(images.keys)[:, None]
        shape = tuple(images.pixels.shape[1:])
        start = epsilon * keyed_uniform(images.keys, rank, shape, clean.setting.seed + MISALIGNMENT_SEED)[:, 0]
        units = clean.unit_ids[:, 0].clamp(min=0)
        attacked = clean.observer.attack(images, units, free[:, None], start, Attack(epsilon, 0.01 * std, steps))
        outputs = clean.observer.see(Images(attacked, images.keys, images.names), units[:, None])
        self.target_ids = clean.unit_ids[:, 0].masked_fill(~has_region, -1)
        self.target_maps, self.perturbed_target_maps = (
            upsample_maps(maps, layout[0], "bilinear", layout[1]) for maps in (best, outputs.maps[:, 0])
        )
        self.perturbed_scores = outputs.scores
        self.perturbed_logits = outputs.logits


class Intervention(View):
    """The clean image with concepts corrected group by group, one more per step (Koh et al. 2020).

    An unknown concept of an image is not corrected: the step changes nothing else. An image without any known concept
    has no logits after a correction (NaN). An image without corrected concepts keeps its logits, bit for bit.
    """

    def __init__(self, clean: Clean, how: Correction) -> None:
        super().__init__(clean)
        setting, model, keys = clean.setting, cast(Intervenable, clean.model), clean.images.keys
        concepts: Tensor = setting.facts.units.concepts
        groups, count = setting.groups[int(how.single)]
        if how.uncertain_first:
            priority = group_uncertainty(clean.concept_probabilities, groups, count)[:, None]
        else:
            trials = torch.arange(how.trials, device=keys.device).expand(len(keys), -1)
            priority = keyed_uniform(keys, trials, (count,), setting.seed + INTERVENTION_SEED)
        truth = clean.concept_labels.index_select(1, concepts.clamp(min=0))[:, None, None]
        known = ~truth.isnan()
        masks = intervention_masks(priority, groups) & known
        scores = model.intervene(clean.scores[:, None, None], truth == 1, masks, cast(Values | None, how.values))
        correctable = (known & (groups >= 0)).any(dim=3, keepdim=True)
        logits = logits_of(clean.model, scores, clean.outputs.context).masked_fill(~correctable, torch.nan)
        plain = clean.logits[:, None, None].expand(-1, how.trials, 1, -1)
        self.intervened_logits = torch.cat([plain, logits], dim=2)


class SparseHeads(View):
    """The clean image, classified by heads with few weights."""

    @cached_property
    def sparse_logits(self) -> Tensor:
        """``(B, T, K)`` float64, by all units."""
        return self._logits("sparse_logits")

    @cached_property
    def concept_head_logits(self) -> Tensor:
        """``(B, K)`` float64, by the units that stand for a concept, with most weights."""
        return self._logits("concept_head_logits")[:, -1]

    def _logits(self, field: str) -> Tensor:
        weight, bias = self.clean.setting.sparse_heads[field]
        return torch.einsum("bu,tku->btk", self.clean.scores.double(), weight) + bias


class Tcav(View):
    """The clean image, moved a little in the latent space; one forward and one backward pass."""

    @cached_property
    def concept_derivatives(self) -> Tensor:
        """``(B, 2, L)``, of the logit of the image's class if all cells move along a direction."""
        assert self.clean.setting.directions is not None
        gradients = self.clean.observer.latent_gradients(self.clean.images, self.clean.labels)
        return torch.einsum("bd,rld->brl", gradients, self.clean.setting.directions)


# What a metric can ask for; a view that comes in several draws feeds its metrics once per draw.
def _randomised(stages: int, clean: Clean) -> list[Any]:
    return [Randomised(clean, stages)]


VIEWS: dict[str, Callable[[Clean], list[Any]]] = {
    "clean": lambda clean: [clean],
    "clipped": lambda clean: [Clipped(clean)],
    "localisation": lambda clean: [Localisation(clean)],
    "concepts": lambda clean: [Concepts(clean)],
    "completeness": lambda clean: [Completeness(clean)],
    "continuity": lambda clean: [Continuity(clean)],
    "stability": lambda clean: [Stability(clean, draw) for draw in range(DRAWS)],
    "misalignment": lambda clean: [Misalignment(clean, clean.setting.attack_steps)],
    "misalignment_noise": lambda clean: [Misalignment(clean, 0)],
    "deletion": lambda clean: [Removal(clean, 1)],
    "insertion": lambda clean: [Removal(clean, -1)],
    "place": lambda clean: [Place(clean)],
    "randomised": lambda clean: [Randomised(clean)],
    **{f"randomised@{stages}": partial(_randomised, stages) for stages in STAGES},
    "exchanged": lambda clean: [Exchanged(clean)],
    "shortcut": lambda clean: [Shortcut(clean)],
    SPARSE_HEADS: lambda clean: [SparseHeads(clean)],
    TCAV: lambda clean: [Tcav(clean)],
    **{
        f"intervention{ending}": lambda clean, how=how: [Intervention(clean, how)]  # type: ignore[misc]
        for ending, how in CORRECTIONS.items()
    },
}


def inside(boxes: Tensor, image_size: tuple[int, int]) -> Tensor:
    """``(B, H, W)`` bool, the pixels in ``(B, 4)`` inclusive boxes."""
    x0, y0, x1, y1 = boxes[:, :, None].unbind(dim=1)
    y, x = (torch.arange(size, device=boxes.device) for size in image_size)
    rows, columns = (y >= y0) & (y <= y1), (x >= x0) & (x <= x1)
    return rows[:, :, None] & columns[:, None, :]
