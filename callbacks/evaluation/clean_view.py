"""The view of the clean image, whose fields metrics read by name; each is computed once per batch, and only if read.

Names and shapes of the fields are those of the ``update`` arguments in ``metrics``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor

from callbacks.evaluation.funnybirds.birds import Birds
from callbacks.forward.observer import Images, Observer, Seen
from lightning_modules.contract import InterpretableModel, Intervenable
from metrics.functional import Variant, clip_saliency, gather_units, patch_boxes, peak_cells, peak_locations


@dataclass(frozen=True)
class Setting:
    """Settings of a pass.

    Args:
        seed: of all noise.
        noise: standard deviation of the completeness noise, in [0, 1] units (``quanproto``: in normalised units).
        variant: ``"quanproto"`` perturbs as the published tables did.
        explain: whether some metric reads ``saliency``.
        explain_perturbed: whether some metric reads ``perturbed_saliency``.
        keep_maps: whether some metric reads more maps than those of the top units.
        attack_steps: of the misalignment attack.
        abstains: whether the model may leave an image undecided.
        named: ``(M,)`` int64, the units that stand for a concept.
        concepts: ``(M,)`` int64, the concept of each.
        part_codes: for each group of parts its codes in a label map.
        unit_concepts: ``(U,)`` int64, the concept each unit stands for, or None.
        groups: in which units are corrected, ``(U,)`` int64, and their number: by what they answer, and one by one; or
            None.
        birds: images whose parts can be removed, or None.
        explain_classes: whether some metric reads explanations of the label, of its pair of classes and of the
            prediction.
    """

    seed: int = 0
    noise: float = 0.05
    variant: Variant = "paper"
    explain: bool = False
    explain_perturbed: bool = False
    keep_maps: bool = False
    attack_steps: int = 40
    abstains: bool = False
    named: Tensor | None = None
    concepts: Tensor | None = None
    part_codes: Sequence[Sequence[int]] = ()
    unit_concepts: Tensor | None = None
    groups: tuple[tuple[Tensor, int], tuple[Tensor, int]] | None = None
    birds: Birds | None = None
    explain_classes: bool = False


class Clean:
    """Fields of the clean image.

    Args:
        batch: a :class:`~datamodules.sample.Batch`.
        observer: shows images to the model.
        setting: of the pass.
        owned: ``(K, M)`` int64, the active units of each class, padded with -1.
        seen: what the model saw, if it has been shown the images already.
    """

    def __init__(
        self, batch: dict[str, Any], observer: Observer, setting: Setting, owned: Tensor, seen: Seen | None = None
    ) -> None:
        self.batch = batch
        self.observer = observer
        self.setting = setting
        self.owned = owned
        self.model: InterpretableModel = observer.model
        self.images = Images(batch["image"], batch["sample_key"], batch["sample_id"])
        self.image_size: tuple[int, int] = (batch["image"].shape[2], batch["image"].shape[3])
        self.seen = seen or observer.see(
            self.images, explain=setting.explain, keep_maps=setting.keep_maps, classes=self._compared_classes()
        )
        self.logits, self.scores, self.latent = self.seen.logits, self.seen.scores, self.seen.latent
        self.unit_ids, self.maps, self.saliency = self.seen.unit_ids, self.seen.maps, self.seen.saliency
        self.sample_ids = self.images.keys
        self.valid = None

    @cached_property
    def labels(self) -> Tensor:
        """``(B,)`` int64, or ``(B, K)`` bool for multilabel data."""
        labels: Tensor = self.batch.get("labels", self.batch["label"])
        return labels

    @cached_property
    def abstained(self) -> Tensor | None:
        """``(B,)`` bool, all classes have the same logit; None for a model that always decides."""
        return (self.logits == self.logits[:, :1]).all(dim=1) if self.setting.abstains else None

    @cached_property
    def unit_logits(self) -> Tensor:
        """``(B, K)`` float, what the units contribute to the logits, without bias."""
        return self.model.head(self.scores) - self.model.head(torch.zeros_like(self.scores[:1]))

    @cached_property
    def residual(self) -> Tensor:
        """``(B, K)`` float, what they do not."""
        return self.logits - self.model.head(self.scores)

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
    def concept_labels(self) -> Tensor:
        """``(B, L)`` bool."""
        return self._from_batch("concepts")

    @cached_property
    def concept_probabilities(self) -> Tensor:
        """``(B, U)`` float, of a model whose concepts can be corrected."""
        return cast(Intervenable, self.model).concept_probabilities(self.scores)

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
        return self.peaks_of(self.unit_maps)

    @property
    def unit_maps(self) -> Tensor:
        """``(B, U, h, w)`` float, maps of all units."""
        assert self.seen.all_maps is not None
        return self.seen.all_maps

    @cached_property
    def unit_boxes(self) -> Tensor:
        """``(B, U, 4)`` int64, the patch of every unit's peak cell; 32 pixels a side at 224."""
        maps = self.unit_maps
        patch = max(1, scaled(32, self.image_size))
        return patch_boxes(peak_cells(maps), (maps.shape[2], maps.shape[3]), self.image_size, patch)

    def peaks_of(self, maps: Tensor) -> Tensor:
        """``(B, M, 2)`` peaks of the owned units in ``(B, U, h, w)`` maps; (0, 0) in empty slots."""
        return peak_locations(gather_units(maps, self.owned_ids), self.image_size)

    def _compared_classes(self) -> Tensor | None:
        """``(B, 3)`` int64, the label and its pair of classes, -1 without one; None if they are not to be explained."""
        if not self.setting.explain_classes:
            return None
        assert self.setting.birds is not None
        pairs = self.setting.birds.pairs[0].to(self.labels.device)
        return torch.cat([self.labels[:, None], pairs[self.labels]], dim=1)

    def _from_batch(self, name: str) -> Tensor:
        field: Tensor = self.batch[name]
        return field

    @property
    def _saliency(self) -> Tensor:
        assert self.saliency is not None
        return self.saliency


class View:
    """A view that falls back to the clean one for every field it does not define."""

    def __init__(self, clean: Clean) -> None:
        self.clean = clean

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self), name):  # its property raised this; the clean field would hide it
            raise AttributeError(f"Expected {type(self).__name__}.{name} to be computed, but it failed.")
        return getattr(self.clean, name)


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


def scaled(pixels: int, image_size: tuple[int, int]) -> int:
    """A length that papers give at 224 pixels, at this height."""
    return round(pixels * image_size[0] / 224)
