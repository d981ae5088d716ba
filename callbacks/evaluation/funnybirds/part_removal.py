"""The view of an image without some of its parts and background objects, and what explanations say about them.

Each subset of kept parts is shown to the model once per image, however many metrics need it; all forwards have the size
of the engine's chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import cast

import torch
from torch import Tensor

from protometry.callbacks.evaluation.clean_view import Clean, View
from protometry.callbacks.evaluation.funnybirds.birds import Birds, other_background, plain_background
from protometry.callbacks.forward.observer import Images
from protometry.explanations import BoxMaps
from protometry.metrics.functional import (
    covered_parts,
    important_parts,
    irrelevant_candidates,
    part_importance,
    part_thresholds,
    subset_codes,
)

FIRST_OBJECT_CODE = 32  # in label maps: of background object 0
_EXPLAINED = {  # the class that is explained -> the fields that read its explanation
    "label": {"label_importance", "label_totals", "label_candidates", "label_parts"},
    "first of pair": {"pair_importance"},
    "second of pair": {"pair_importance"},
    "prediction": {"predicted_parts", "kept_predictions"},
}
EXPLAINING = frozenset[str]().union(*_EXPLAINED.values())  # all of these fields


def explained_slots(fields: frozenset[str]) -> dict[str, int]:
    """The classes to explain for some fields, and the slot of each in ``Outputs.class_maps``."""
    read = [name for name, readers in _EXPLAINED.items() if not fields.isdisjoint(readers)]
    return {name: slot for slot, name in enumerate(read)}


class PartRemoval(View):
    """Fields with the names and shapes of the ``update`` arguments in ``metrics``; each is computed only if read.

    Args:
        dilation: side in pixels of the square that dilates parts before explanations are summed over them.
    """

    def __init__(self, clean: Clean, birds: Birds, dilation: int) -> None:
        super().__init__(clean)
        self._birds, self._dilation = birds, dilation
        self._rows = self._birds.rows(clean.images.names)
        self._parts = len(self._birds.names)
        self._everything = 2**self._parts - 1
        self._slots = explained_slots(clean.setting.fields)

    @cached_property
    def predictions(self) -> Tensor:
        """``(B,)`` int64."""
        return self.clean.logits.argmax(dim=1)

    @cached_property
    def label_logits(self) -> Tensor:
        """``(B,)`` float."""
        return self._of_label(self.clean.logits)

    @cached_property
    def present(self) -> Tensor:
        """``(B, N)`` bool, which parts the images were drawn with."""
        return torch.tensor([self._birds.present(i) for i in self._rows], device=self.clean.labels.device)

    @cached_property
    def shared_parts(self) -> Tensor:
        """``(B, 2, N)`` bool, parts that each class of the pair shares with the label."""
        return self._birds.pairs[1].to(self.clean.labels.device)[self.clean.labels]

    @cached_property
    def background_valid(self) -> Tensor:
        """``(B, M)`` bool, which background objects there are."""
        device = self.clean.labels.device
        numbers = torch.tensor([self._birds.data.n_background(i) for i in self._rows], device=device)
        return torch.arange(int(numbers.max()), device=device) < numbers[:, None]

    # -- what explanations say ---------------------------------------------------------------------------------------
    @cached_property
    def label_importance(self) -> Tensor:
        """``(B, N)`` float64, importance of the parts in the explanation of the label."""
        return self._importance("label")[:, : self._parts]

    @cached_property
    def pair_importance(self) -> Tensor:
        """``(B, 2, N)`` float64, the same of both classes of the pair."""
        both = [self._importance(name)[:, : self._parts] for name in ("first of pair", "second of pair")]
        return torch.stack(both, dim=1)

    @cached_property
    def label_totals(self) -> Tensor:
        """``(B,)`` float64, the sum of the explanation of the label."""
        return self._map("label").double().sum(dim=(1, 2))

    @cached_property
    def label_candidates(self) -> Tensor:
        """``(B, T, N + M)`` bool, important parts and background objects in the explanation of the label."""
        return self._important("label")

    @property
    def label_parts(self) -> Tensor:
        """``(B, T, N)`` bool, the parts among them."""
        return self.label_candidates[:, :, : self._parts]

    @cached_property
    def predicted_parts(self) -> Tensor:
        """``(B, T, N)`` bool, important parts in the explanation of the predicted class."""
        return self._important("prediction")[:, :, : self._parts]

    @cached_property
    def visible(self) -> Tensor:
        """``(B, N)`` bool, which parts have a pixel in the label map."""
        masks, part = self._instances
        pixels = torch.zeros(len(part), self._parts + 1, dtype=torch.int64, device=part.device)
        instances = slice(0, sum(map(len, self._birds.codes)))  # background objects follow them
        pixels.scatter_add_(1, part[:, instances], masks[:, instances].flatten(2).any(dim=2).long())
        return pixels[:, : self._parts] > 0

    def _map(self, explained: str) -> Tensor:
        """``(B, H, W)``, one of the explanations."""
        return cast(Tensor, self.clean.outputs.class_maps)[:, self._slots[explained]]

    def _importance(self, explained: str) -> Tensor:
        """``(B, N + M)`` float64, importance of parts and background objects in one of the explanations."""
        return part_importance(self._map(explained), *self._instances, self._candidates, self._dilation)

    def _important(self, explained: str) -> Tensor:
        """``(B, T, N + M)`` bool, important parts and background objects in one of the explanations."""
        thresholds = part_thresholds().to(self.clean.labels.device)
        if (regions := self.clean.outputs.class_regions) is not None:
            region, rule = regions[:, self._slots[explained]], cast(BoxMaps, self.clean.observer.class_explainer)
            return covered_parts(region, *self._instances, thresholds, self._candidates, rule.coverage)
        total = self._map(explained).double().sum(dim=(1, 2))
        return important_parts(self._importance(explained), total, thresholds)

    @property
    def _candidates(self) -> int:
        return self._parts + self.background_valid.shape[1]

    @cached_property
    def _instances(self) -> tuple[Tensor, Tensor]:
        """Masks ``(B, I, H, W)`` and the part of each, ``(B, I)``; objects follow the parts, padded with -1."""
        label_map, there = self.clean.batch["label_map"], self.background_valid
        codes = [(code, part) for part, own in enumerate(self._birds.codes) for code in own]
        code, part = torch.tensor(codes, device=label_map.device).unbind(dim=1)
        objects = torch.arange(there.shape[1], device=label_map.device)
        wanted = torch.cat([code, FIRST_OBJECT_CODE + objects])
        owner = torch.cat([part.expand(len(there), -1), (self._parts + objects).where(there, -1)], dim=1)
        return label_map[:, None] == wanted[:, None, None], owner

    # -- what the model does -----------------------------------------------------------------------------------------
    @cached_property
    def kept_predictions(self) -> Tensor:
        """``(B, 2^N)`` int64, prediction for the subsets of parts that some metric asks for, else -1."""
        logits, _, row = self._kept
        return logits.argmax(dim=1)[row].masked_fill(row < 0, -1)

    @cached_property
    def part_drops(self) -> Tensor:
        """``(B, N)`` float, drop of the logit of the label without each part."""
        logits, _, row = self._kept
        return self.label_logits[:, None] - self._of_label(logits[row.gather(1, self._without_each)])

    @cached_property
    def score_changes(self) -> Tensor:
        """``(B, U, N)`` float, by how much the score of each unit changes without each part."""
        _, scores, row = self._kept
        without = scores[row.gather(1, self._without_each)]  # (B, N, U)
        return (without - self.clean.scores[:, None]).abs().transpose(1, 2)

    @cached_property
    def pair_drops(self) -> Tensor:
        """``(B, 2, 2)`` float, ``[b, i, j]`` is the drop of the logit of class i without the parts shared by j."""
        logits, _, row = self._kept
        drops = self.clean.logits[:, None] - logits[row.gather(1, self._without_shared)]  # (B, 2, K)
        classes = self._birds.pairs[0].to(drops.device)[self.clean.labels].clamp(min=0)
        return drops.gather(2, classes[:, None].expand(-1, 2, -1)).transpose(1, 2)

    @cached_property
    def background_drops(self) -> Tensor:
        """``(B, M)`` float, drop of the logit of the label without each background object; NaN where there is none."""
        image, index = self.background_valid.nonzero().unbind(dim=1)
        pairs = zip(image.tolist(), index.tolist(), strict=True)
        logits, _ = self._show(image, [partial(self._birds.without_object, self._rows[b], j) for b, j in pairs])
        drops = self.label_logits.new_full(self.background_valid.shape, torch.nan)
        drops[image, index] = self.label_logits[image] - logits.gather(1, self.clean.labels[image][:, None])[:, 0]
        return drops

    @cached_property
    def irrelevant(self) -> Tensor:
        """``(B, N + M)`` bool, parts and background objects that the model does not use for the label."""
        drops = torch.cat([self.part_drops.masked_fill(~self.present, torch.nan), self.background_drops], dim=1)
        return irrelevant_candidates(drops, self.label_logits)

    @cached_property
    def _without_each(self) -> Tensor:
        """``(B, N)`` int64, the code of all parts but one."""
        alone = subset_codes(torch.eye(self._parts, dtype=torch.bool, device=self.clean.labels.device))
        codes: Tensor = self._everything - alone
        return codes.expand(len(self._rows), -1)

    @cached_property
    def _without_shared(self) -> Tensor:
        """``(B, 2)`` int64, the code of all parts but those that a class of the pair shares."""
        codes: Tensor = self._everything - subset_codes(self.shared_parts)
        return codes

    @cached_property
    def _kept(self) -> tuple[Tensor, Tensor, Tensor]:
        """Logits and scores of images and subsets, and the row of each subset, ``(B, 2^N)``, -1 where not shown.

        Only subsets that some metric reads are shown. A part that was not drawn cannot be removed, so subsets that
        differ in it alone are one; the subset of all drawn parts is the image itself, which the model has been shown.
        """
        reads, drawn = self.clean.setting.fields, subset_codes(self.present)[:, None]
        needed = torch.zeros(len(drawn), self._everything + 1, dtype=torch.bool, device=drawn.device)
        if not reads.isdisjoint({"part_drops", "irrelevant", "score_changes"}):
            needed.scatter_(1, self._without_each & drawn, True)
        if "pair_drops" in reads:
            needed.scatter_(1, self._without_shared & drawn, True)
        if "kept_predictions" in reads:
            kept = subset_codes(self.predicted_parts)
            needed.scatter_(1, torch.cat([kept, self._everything - kept], dim=1) & drawn, True)
        image, code = needed.scatter_(1, drawn, False).nonzero().unbind(dim=1)
        pairs = zip(image.tolist(), code.tolist(), strict=True)
        logits, scores = self._show(image, [partial(self._birds.without, self._rows[b], c) for b, c in pairs])
        row = needed.long() - 1
        row[image, code] = len(drawn) + torch.arange(len(image), device=drawn.device)
        row.scatter_(1, drawn, torch.arange(len(drawn), device=drawn.device)[:, None])
        every = torch.arange(self._everything + 1, device=drawn.device)
        rows = row.gather(1, every & drawn)
        return torch.cat([self.clean.logits, logits]), torch.cat([self.clean.scores, scores]), rows

    def _show(self, image: Tensor, made: list[Callable[[], Tensor]]) -> tuple[Tensor, Tensor]:
        """``(R, K)`` logits and ``(R, U)`` scores of changed images, which are made as they are shown.

        Raises:
            ValueError: if the background of one changed, with the sample ids.
        """
        clean, step = self.clean.images, self.clean.observer.chunk
        logits, scores, foreign = [self.clean.logits[:0]], [self.clean.scores[:0]], [torch.zeros_like(image[:0])]
        for first in range(0, len(made), step):
            rows = image[first : first + step]
            changed = torch.stack([make() for make in made[first : first + step]]).to(image.device)
            pixels = changed.movedim(-1, 1).float().div(255)
            images = Images(pixels, clean.keys[rows], [clean.names[b] for b in rows.tolist()])
            seen = self.clean.observer.see(images)
            logits.append(seen.logits)
            scores.append(seen.scores)
            if "label_map" in self.clean.batch:
                foreign.append(rows[other_background(pixels, clean.pixels[rows], self._background[rows])])
        if broken := sorted(set(torch.cat(foreign).tolist())):
            raise ValueError(
                "Expected interventions to change nothing but parts or an object, but those of "
                f"{', '.join(clean.names[b] for b in broken[:5])} have another background than their images; "
                "replace these renderings."
            )
        return torch.cat(logits), torch.cat(scores)

    @cached_property
    def _background(self) -> Tensor:
        """``(B, H, W)`` bool."""
        return plain_background(self.clean.batch["label_map"])

    def _of_label(self, logits: Tensor) -> Tensor:
        """Logits ``(B, ...)`` of the label of each image in logits ``(B, ..., K)``."""
        labels = self.clean.labels.view(-1, *[1] * (logits.ndim - 1)).expand(*logits.shape[:-1], 1)
        return logits.gather(-1, labels)[..., 0]
