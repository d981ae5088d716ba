"""What a model does without parts and background objects, beside what its explanations say about them.

Everything that metrics of FunnyBirds read is made here, batch by batch: one clean forward, one explanation of each of
four classes, and one forward for every image without something that some metric needs. Each subset of kept parts is
shown once per image, whatever asks for it; all forwards have the size of the engine's chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from callbacks.evaluation.observer import Images, Observer
from explanations import BoxMaps, Explainer, Targets
from metrics.functional import (
    CoverageVariant,
    covered_parts,
    important_parts,
    irrelevant_candidates,
    part_dilation,
    part_importance,
    subset_codes,
    target_pairs,
)

Interface = Literal["ssm", "bb", "bb_reference", "attribution"]
FIRST_OBJECT_CODE = 32  # in label maps: of background object 0


@dataclass(frozen=True)
class Birds:
    """The images of a split, with the means to take parts and objects away.

    Args:
        data: a data set with the interface ``InterventionDataset``.
        codes: codes of every part in label maps, in the order of the parts.
    """

    data: Any
    codes: list[tuple[int, ...]]

    @property
    def class_parts(self) -> Tensor:
        """``(K, N)`` int64, the variant of each part in each class."""
        return torch.tensor([[parts[name] for name in self.names] for parts in self.data.classes])

    @property
    def names(self) -> list[str]:
        """The N parts."""
        return list(self.data.parts)

    def present(self, i: int) -> list[bool]:
        """Which parts image ``i`` was drawn with."""
        there = self.data.present(i)
        return [name in there for name in self.names]

    def without(self, i: int, code: int) -> Tensor:
        """``(H, W, 3)`` uint8, the image with the parts of a subset only."""
        gone = [name for j, name in enumerate(self.names) if not code >> j & 1 and name in self.data.present(i)]
        return torch.as_tensor(self.data.intervene(i, drop=gone))

    def without_object(self, i: int, index: int) -> Tensor:
        """``(H, W, 3)`` uint8, the image without a background object."""
        return torch.as_tensor(self.data.intervene(i, drop_background=(index,)))


@dataclass(frozen=True)
class Reading:
    """How explanations are read.

    Args:
        interface: from explanations to parts.
        thresholds: ``(T,)`` float64.
        abstains: whether the model may leave an image undecided.
    """

    interface: Interface
    thresholds: Tensor
    abstains: bool = False

    @property
    def coverage(self) -> CoverageVariant:
        """How boxes cover a part."""
        return "reference" if self.interface == "bb_reference" else "fixed"


class PartRemoval:
    """Fields of one batch, with the names and shapes of the ``update`` arguments in ``metrics.funnybirds``.

    ``counts`` has the forwards besides the clean ones, the hidden parts, and the explanations of labels whose
    attribution sums to zero or less, for which the share rule is permissive.

    Args:
        batch: a :class:`~datamodules.sample.Batch` with label maps, on the device of the model.
        rows: index of each image of the batch in ``birds``.
        birds: the images.
        observer: shows images to the model and explains them.
        reading: how explanations are read.
    """

    def __init__(
        self,
        batch: dict[str, Any],
        rows: list[int],
        birds: Birds,
        observer: Observer,
        reading: Reading,
    ) -> None:
        self._images = Images(batch["image"], batch["sample_key"], batch["sample_id"])
        self._rows, self._birds, self._observer = rows, birds, observer
        self._reading = reading
        self.labels: Tensor = batch["label"]
        self.sample_ids = self._images.keys
        self._parts = len(birds.names)
        self._everything = 2**self._parts - 1
        self.counts = dict.fromkeys(("forwards", "hidden_parts", "totals_not_positive"), 0)
        pairs, shared = (table.to(self.labels.device)[self.labels] for table in target_pairs(birds.class_parts))
        self.shared_parts: Tensor = shared
        self._pairs = pairs
        self._explain(batch["label_map"])
        self._remove_parts()
        self._remove_objects()
        self.irrelevant = irrelevant_candidates(
            torch.cat([self._own_drops, self.background_drops], dim=1), self.label_logits
        )

    # -- what explanations say ---------------------------------------------------------------------------------------
    def _explain(self, label_map: Tensor) -> None:
        """Importance and important parts in the explanations of label, prediction and both classes of the pair."""
        self.logits, maps, regions = explain_classes(
            self._observer, self._images, torch.cat([self.labels[:, None], self._pairs], dim=1)
        )
        self.predictions = self.logits.argmax(dim=1)
        self.label_logits = self._of_label(self.logits)
        self.abstained = (self.logits == self.logits[:, :1]).all(dim=1) if self._reading.abstains else None
        masks, part, there = self._instances(label_map)
        candidates = self._parts + there.shape[1]
        boxes = regions is not None
        importance = partial(part_importance, dilation=1 if boxes else part_dilation(label_map.shape[1]))

        def important(at: int, masks: Tensor, part: Tensor, number: int) -> tuple[Tensor, Tensor]:
            values = importance(maps[:, at], masks, part, number)
            if regions is not None:
                rule = self._reading.coverage
                return values, covered_parts(regions[:, at], masks, part, self._reading.thresholds, number, rule)
            return values, important_parts(values, maps[:, at].double().sum(dim=(1, 2)), self._reading.thresholds)

        of_label, self.label_candidates = important(0, masks, part, candidates)
        self.label_importance = of_label[:, : self._parts]
        self.label_parts = self.label_candidates[:, :, : self._parts]
        only_parts = slice(0, sum(map(len, self._birds.codes)))
        masks, part = masks[:, only_parts], part[:, only_parts]
        self.predicted_parts = important(3, masks, part, self._parts)[1]
        self.pair_importance = torch.stack([importance(maps[:, i], masks, part, self._parts) for i in (1, 2)], dim=1)
        if not boxes:
            self.counts["totals_not_positive"] = int((maps[:, 0].double().sum(dim=(1, 2)) <= 0).sum())
        shown = torch.zeros_like(self.present, dtype=torch.int64).scatter_add_(
            1, part, masks.flatten(2).any(dim=2).long()
        )
        self.counts["hidden_parts"] = int((self.present & (shown == 0)).sum())

    def _instances(self, label_map: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Masks, parts and which background objects there are; objects follow the parts, padded with -1."""
        device, data = label_map.device, self._birds.data
        self.present = torch.tensor([self._birds.present(i) for i in self._rows], device=device)
        numbers = torch.tensor([data.n_background(i) for i in self._rows], device=device)
        objects = torch.arange(int(numbers.max()) if len(numbers) else 0, device=device)
        there = objects < numbers[:, None]
        codes = torch.tensor([code for part in self._birds.codes for code in part], device=device)
        part = torch.tensor([j for j, part in enumerate(self._birds.codes) for _ in part], device=device)
        wanted = torch.cat([codes, FIRST_OBJECT_CODE + objects])
        slots = torch.cat([part.expand(len(there), -1), (self._parts + objects).where(there, -1)], dim=1)
        return label_map[:, None] == wanted[:, None, None], slots, there

    # -- what the model does -----------------------------------------------------------------------------------------
    def _remove_parts(self) -> None:
        """One forward for every subset of kept parts that some metric asks for."""
        single = self._everything - 2 ** torch.arange(self._parts, device=self.labels.device)
        pair = self._everything - subset_codes(self.shared_parts)
        kept = subset_codes(self.predicted_parts)
        # a part that was not drawn cannot be removed: the subset is that of the parts that were
        asked = torch.cat([single.expand(len(kept), -1), pair, kept, self._everything - kept], dim=1)
        drawn = subset_codes(self.present)[:, None]
        needed = torch.zeros(len(kept), self._everything + 1, dtype=torch.bool, device=kept.device)
        needed.scatter_(1, asked & drawn, True).scatter_(1, drawn, False)
        image, code = needed.nonzero().unbind(dim=1)
        removed = self._show(
            image,
            [
                partial(self._birds.without, self._rows[b], c)
                for b, c in zip(image.tolist(), code.tolist(), strict=True)
            ],
        )
        logits = torch.cat([self.logits, removed])
        place = torch.full_like(needed, 0, dtype=torch.int64) - 1
        place[image, code] = len(self.logits) + torch.arange(len(image), device=image.device)
        place.scatter_(1, drawn, torch.arange(len(kept), device=kept.device)[:, None])
        every = torch.arange(self._everything + 1, device=kept.device)
        place = place.gather(1, every & drawn)
        self.kept_predictions = logits.argmax(dim=1)[place].masked_fill(place < 0, -1)
        self.part_drops = self.label_logits[:, None] - self._of_label(
            logits[place.gather(1, single.expand(len(kept), -1))]
        )
        self._own_drops = self.part_drops.masked_fill(~self.present, torch.nan)
        rows = torch.arange(len(kept), device=kept.device)[:, None]
        without = logits[place.gather(1, pair)]  # (B, shared parts of class, K)
        classes = self._pairs.clamp(min=0)
        drops = self.logits[:, None] - without
        self.pair_drops = drops[rows[:, :, None], torch.arange(2, device=kept.device), classes[:, :, None]]

    def _remove_objects(self) -> None:
        """One forward for every background object."""
        numbers = [self._birds.data.n_background(i) for i in self._rows]
        most = max(numbers, default=0)
        self.background_valid = torch.tensor(
            [[j < number for j in range(most)] for number in numbers], device=self.labels.device, dtype=torch.bool
        ).view(len(numbers), most)
        image, index = self.background_valid.nonzero().unbind(dim=1)
        pairs = zip(image.tolist(), index.tolist(), strict=True)
        logits = self._show(image, [partial(self._birds.without_object, self._rows[b], j) for b, j in pairs])
        self.background_drops = self.label_logits.new_full(self.background_valid.shape, torch.nan)
        own = logits.gather(1, self.labels[image][:, None])[:, 0]
        self.background_drops[image, index] = self.label_logits[image] - own

    def _show(self, image: Tensor, made: list[Any]) -> Tensor:
        """``(R, K)`` logits of changed images, which are made as they are shown."""
        self.counts["forwards"] += len(made)
        step, found = self._observer.chunk, [self.logits[:0]]
        for first in range(0, len(made), step):
            rows = image[first : first + step]
            pixels = torch.stack([make() for make in made[first : first + step]]).to(image.device)
            names = [self._images.names[b] for b in rows.tolist()]
            images = Images(pixels.movedim(-1, 1).float().div(255), self.sample_ids[rows], names)
            found.append(self._observer.see(images).logits)
        return torch.cat(found)

    def _of_label(self, logits: Tensor) -> Tensor:
        """Logits ``(B, ...)`` of the label of each image in logits ``(B, ..., K)``."""
        labels = self.labels.view(-1, *[1] * (logits.ndim - 1)).expand(*logits.shape[:-1], 1)
        return logits.gather(-1, labels)[..., 0]


def explain_classes(observer: Observer, images: Images, classes: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Explanations of classes and of the predicted one, in chunks of one size.

    Args:
        observer: with an explainer of classes.
        images: B images.
        classes: ``(B, k)`` int64; -1 is an empty slot.

    Returns:
        ``(B, K)`` logits, ``(B, k + 1, H, W)`` maps, the last one of the predicted class and NaN in empty slots, and
        the regions that boxes cover, ``(B, k + 1, H, W)`` bool, or None where there are no boxes.
    """
    explainer: Explainer = observer.explainer
    found: list[list[Tensor]] = []
    for rows, count in observer.chunks(len(images.pixels)):
        pixels = images.pixels[rows]
        output = explainer.observe(observer.model, pixels)
        ids = torch.cat([classes[rows], output.logits.argmax(dim=1, keepdim=True)], dim=1)
        maps = explainer.attribute(
            observer.model, pixels, Targets("class", ids), output=output, sample_ids=images.keys[rows]
        )
        parts = [output.logits.detach(), maps]
        if isinstance(explainer, BoxMaps):
            size = (pixels.shape[2], pixels.shape[3])
            parts.append(explainer.region(observer.model, output, ids, size))
        found.append([part[:count] for part in parts])
    logits, maps, *regions = (torch.cat(parts) for parts in zip(*found, strict=True))
    observer.note_broken(~logits.isfinite().all(dim=1), images.names)
    return logits, maps, regions[0] if regions else None


def batches_of(birds: Birds, loader: Any, device: torch.device) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """Batches on a device, with the index of each of their images."""
    index = {name: i for i, name in enumerate(birds.data.sample_ids)}
    for batch in loader:
        moved = {name: value.to(device) if isinstance(value, Tensor) else value for name, value in batch.items()}
        yield moved, [index[name] for name in batch["sample_id"]]
