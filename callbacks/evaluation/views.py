"""The evaluation record, field by field: what metrics read by name, each field computed once per batch, if asked for.

A view is the record of the clean image (:class:`Clean`), or of the image under one perturbation, which knows all clean
fields too. Names and shapes are those of the ``update`` arguments in ``metrics``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from callbacks.evaluation.observer import Attack, Images, Observer
from lightning_modules.contract import InterpretableModel
from metrics.functional import (
    Variant,
    bounding_boxes,
    clip_saliency,
    completeness_perturbation,
    gather_units,
    keyed_noise,
    keyed_uniform,
    patch_boxes,
    peak_cells,
    peak_locations,
    percentile_mask,
)

# Uses of noise that must not repeat each other's draws; user seeds are far smaller.
STABILITY_SEED, MISALIGNMENT_SEED = 1 << 40, 2 << 40
STABILITY_DRAWS = 3


@dataclass(frozen=True)
class Setting:
    """What stays the same over a pass.

    Args:
        seed: of all noise.
        noise: standard deviation of the completeness noise, in [0, 1] units (``quanproto``: in normalised units).
        variant: ``"quanproto"`` perturbs as the published tables did.
        explain: whether some metric reads ``saliency``.
        explain_perturbed: whether some metric reads ``perturbed_saliency``.
        keep_maps: whether some metric reads more maps than those of the top units.
        attack_steps: of the misalignment attack.
        abstains: whether the model may leave an image undecided.
    """

    seed: int = 0
    noise: float = 0.05
    variant: Variant = "paper"
    explain: bool = False
    explain_perturbed: bool = False
    keep_maps: bool = False
    attack_steps: int = 40
    abstains: bool = False


class Clean:
    """Fields of the clean image.

    Args:
        batch: a :class:`~datamodules.sample.Batch`.
        observer: shows images to the model.
        setting: of the pass.
        owned: ``(K, M)`` int64, the active units of each class, padded with -1.
    """

    def __init__(self, batch: dict[str, Any], observer: Observer, setting: Setting, owned: Tensor) -> None:
        self.batch = batch
        self.observer = observer
        self.setting = setting
        self.owned = owned
        self.model: InterpretableModel = observer.model
        self.images = Images(batch["image"], batch["sample_key"], batch["sample_id"])
        self.image_size: tuple[int, int] = (batch["image"].shape[2], batch["image"].shape[3])
        self.seen = observer.see(self.images, explain=setting.explain, keep_maps=setting.keep_maps)
        self.logits, self.scores, self.latent = self.seen.logits, self.seen.scores, self.seen.latent
        self.unit_ids, self.maps, self.saliency = self.seen.unit_ids, self.seen.maps, self.seen.saliency
        self.sample_ids = self.images.keys
        self.valid = None

    @cached_property
    def labels(self) -> Tensor:
        """``(B,)`` int64, or ``(B, K)`` bool for data with several labels."""
        labels: Tensor = self.batch.get("labels", self.batch["label"])
        return labels

    @cached_property
    def abstained(self) -> Tensor | None:
        """``(B,)`` bool, all classes have the same logit; None for a model that always decides."""
        return (self.logits == self.logits[:, :1]).all(dim=1) if self.setting.abstains else None

    @cached_property
    def object_masks(self) -> Tensor:
        """``(B, H, W)`` bool."""
        return self._from_batch("object_mask")

    @cached_property
    def part_locations(self) -> Tensor:
        """``(B, N, 2)`` float pixels."""
        return self._from_batch("part_points")

    @cached_property
    def part_visible(self) -> Tensor:
        """``(B, N)`` bool."""
        return self._from_batch("part_visible")

    @cached_property
    def clipped_saliency(self) -> Tensor:
        """``(B, k, H, W)`` float, clipped once for all metrics that read regions."""
        return clip_saliency(self._saliency)

    @cached_property
    def owned_ids(self) -> Tensor:
        """``(B, M)`` int64, the active units of the image's class, padded with -1."""
        return self.owned[self.labels]

    @cached_property
    def owned_peaks(self) -> Tensor:
        """``(B, M, 2)`` int64 pixels, peaks of the bicubic maps of the owned units."""
        assert self.seen.all_maps is not None
        return self.peaks_of(self.seen.all_maps)

    @cached_property
    def unit_boxes(self) -> Tensor:
        """``(B, U, 4)`` int64, the patch of every unit's peak cell; 32 pixels a side at 224."""
        maps = self.seen.all_maps
        assert maps is not None
        patch = max(1, scaled(32, self.image_size))
        return patch_boxes(peak_cells(maps), (maps.shape[2], maps.shape[3]), self.image_size, patch)

    def peaks_of(self, maps: Tensor) -> Tensor:
        """``(B, M, 2)`` peaks of the owned units in ``(B, U, h, w)`` maps; (0, 0) in empty slots."""
        return peak_locations(gather_units(maps, self.owned_ids), self.image_size)

    def _from_batch(self, name: str) -> Tensor:
        field: Tensor = self.batch[name]
        return field

    @property
    def _saliency(self) -> Tensor:
        assert self.saliency is not None
        return self.saliency


class View:
    """A record that falls back to the clean one for every field it does not define."""

    def __init__(self, clean: Clean) -> None:
        self.clean = clean

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self), name):  # its property raised this; the clean field would hide it
            raise AttributeError(f"Expected {type(self).__name__}.{name} to be computed, but it failed.")
        return getattr(self.clean, name)


class Clipped(View):
    """The clean image, with the saliency clipped."""

    @property
    def saliency(self) -> Tensor:
        """``(B, k, H, W)`` float >= 0."""
        return self.clean.clipped_saliency


class Localisation(View):
    """The clean image, with the filled bounding box for an object where there is no mask."""

    @cached_property
    def object_masks(self) -> Tensor:
        """``(B, H, W)`` bool."""
        if "object_mask" in self.clean.batch:
            return self.clean.object_masks
        return inside(self.clean.batch["bounding_box"], self.clean.image_size)


class Completeness(Clipped):
    """One image per top unit, with noise everywhere but in the box around the unit's region."""

    def __init__(self, clean: Clean) -> None:
        super().__init__(clean)
        setting, images, unit_ids = clean.setting, clean.images, clean.unit_ids
        boxes = bounding_boxes(clean.clipped_saliency > 0)
        quanproto = setting.variant == "quanproto"
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
            explain=setting.explain_perturbed,
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
    """The photometric view that the data module made."""

    def __init__(self, clean: Clean) -> None:
        super().__init__(clean)
        images = Images(clean.batch["second_view"], clean.images.keys, clean.images.names)
        seen = clean.observer.see(images, clean.unit_ids)
        self.perturbed_logits, self.perturbed_scores, self.perturbed_maps = seen.logits, seen.scores, seen.maps


class Stability(View):
    """The image under one draw of noise: sd 0.2, clipped to 0.25, in normalised units (Huang et al. 2023)."""

    def __init__(self, clean: Clean, draw: int) -> None:
        super().__init__(clean)
        images, setting = clean.images, clean.setting
        ranks = torch.full_like(images.keys, draw)[:, None]
        noise = keyed_noise(images.keys, ranks, tuple(images.pixels.shape[1:]), setting.seed + STABILITY_SEED)[:, 0]
        noisy = images.pixels + (0.2 * noise).clamp(-0.25, 0.25) * clean.model.input_std
        seen = clean.observer.see(Images(noisy, images.keys, images.names), clean.unit_ids, keep_maps=True)
        assert seen.all_maps is not None
        self.perturbed_owned_peaks = clean.peaks_of(seen.all_maps)


class Misalignment(View):
    """The image attacked outside the region of its best unit (Sacha et al. 2024).

    Args:
        clean: the record.
        steps: of the attack; with 0 the random start alone, which is what the released code measures.
    """

    def __init__(self, clean: Clean, steps: int) -> None:
        super().__init__(clean)
        images, std = clean.images, clean.model.input_std
        best = clean.maps[:, :1]
        region = percentile_mask(F.interpolate(best, clean.image_size, mode="bicubic", align_corners=False))
        box = bounding_boxes(region)[:, 0]
        found = (clean.unit_ids[:, 0] >= 0) & (box[:, 2] >= 0)
        margin = scaled(10, clean.image_size)
        free = ~inside(box + torch.tensor([-margin, -margin, margin, margin], device=box.device), clean.image_size)
        epsilon = 0.4 * std
        rank = torch.zeros_like(images.keys)[:, None]
        shape = tuple(images.pixels.shape[1:])
        start = epsilon * keyed_uniform(images.keys, rank, shape, clean.setting.seed + MISALIGNMENT_SEED)[:, 0]
        units = clean.unit_ids[:, 0].clamp(min=0)
        attacked = clean.observer.attack(images, units, free[:, None], start, Attack(epsilon, 0.01 * std, steps))
        seen = clean.observer.see(Images(attacked, images.keys, images.names), units[:, None])
        self.target_ids = clean.unit_ids[:, 0].masked_fill(~found, -1)
        self.target_maps, self.perturbed_target_maps = (
            F.interpolate(maps, clean.image_size, mode="bilinear", align_corners=False)[:, 0]
            for maps in (best, seen.maps)
        )
        self.perturbed_scores = seen.scores
        self.perturbed_logits = seen.logits.masked_fill(~found[:, None], torch.nan)  # nothing was protected


# What a metric can ask for; a view that comes in several draws feeds its metrics once per draw.
VIEWS: dict[str, Callable[[Clean], list[Any]]] = {
    "clean": lambda clean: [clean],
    "clipped": lambda clean: [Clipped(clean)],
    "localisation": lambda clean: [Localisation(clean)],
    "completeness": lambda clean: [Completeness(clean)],
    "continuity": lambda clean: [Continuity(clean)],
    "stability": lambda clean: [Stability(clean, draw) for draw in range(STABILITY_DRAWS)],
    "misalignment": lambda clean: [Misalignment(clean, clean.setting.attack_steps)],
    "misalignment_noise": lambda clean: [Misalignment(clean, 0)],
}


def owned_units(owner: Tensor, active: Tensor) -> Tensor:
    """The active units of every class.

    Args:
        owner: ``(U, K)`` bool.
        active: ``(U,)`` bool.

    Returns:
        ``(K, M)`` int64 in ascending order, padded with -1; M is the largest number of a class.
    """
    owned = (owner & active[:, None]).T
    counts = owned.sum(dim=1)
    ids = owned.int().argsort(dim=1, descending=True, stable=True)[:, : int(counts.max())]
    return ids.masked_fill(torch.arange(ids.shape[1], device=ids.device) >= counts[:, None], -1)


def inside(boxes: Tensor, image_size: tuple[int, int]) -> Tensor:
    """``(B, H, W)`` bool, the pixels in ``(B, 4)`` inclusive boxes."""
    x0, y0, x1, y1 = boxes[:, :, None].unbind(dim=1)
    y, x = (torch.arange(size, device=boxes.device) for size in image_size)
    rows, columns = (y >= y0) & (y <= y1), (x >= x0) & (x <= x1)
    return rows[:, :, None] & columns[:, None, :]


def scaled(pixels: int, image_size: tuple[int, int]) -> int:
    """A length that papers give at 224 pixels, at this height."""
    return round(pixels * image_size[0] / 224)
