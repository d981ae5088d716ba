"""The views of the sanity metrics: images taken away or stamped, an untrained backbone, and foreign prototypes."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from protometry.callbacks.evaluation.clean_view import Clean, View
from protometry.callbacks.forward.observer import Images
from protometry.lightning_modules.contract import predicted_classes
from protometry.metrics.functional import (
    cell_boxes,
    keyed_uniform,
    only_boxes,
    peak_cells,
    removal_order,
    shifted_maps,
    without_pixels,
)
from protometry.metrics.primitives.regions import is_flat, value_range

SHIFT_SEED = 4 << 40
STEPS = 8  # of a removal


class Shown(View):
    """A view of images that are changed for each of the top units."""

    def _see(self, pixels: Tensor) -> Tensor:
        """``(B, k)`` scores of the top units, each on an image of its own ``(B, k, 3, H, W)`` or on one for all."""
        images, count = self.clean.images, pixels.shape[1]
        names = [name for name in images.names for _ in range(count)]
        shown = Images(pixels.flatten(0, 1), images.keys.repeat_interleave(count), names)
        outputs = self.clean.observer.see(shown, self.clean.unit_ids.reshape(len(shown.pixels), -1))
        return self._of_units(outputs.scores.view(len(images.keys), count, -1))

    def _of_units(self, scores: Tensor) -> Tensor:
        """``(B, k)`` scores of the top units, each on an image of its own ``(B, k, U)`` or all on one ``(B, 1, U)``."""
        ids = self.clean.unit_ids
        own = scores.expand(-1, ids.shape[1], -1).gather(2, ids.clamp(min=0)[:, :, None]).squeeze(2)
        return own.masked_fill(ids < 0, torch.nan)


class Removal(Shown):
    """The image with 0, 1/8, ... 8/8 of its pixels taken away in the order of a map: of each unit, and of a control.

    The whole image is the clean one. Others take 7 forwards for each unit and as many for its control, its own map
    shifted, and one for the empty image: 71 for five units.

    Args:
        sign: of the maps; with -1 the least relevant pixels go first.
    """

    def __init__(self, clean: Clean, sign: int) -> None:
        super().__init__(clean)
        assert clean.saliency is not None
        maps = sign * clean.saliency
        self.removal_scores = self._scores(maps)  # (B, k, 9); NaN in empty slots and for flat maps
        shifted = shifted_maps(maps, clean.images.keys, clean.setting.seed + SHIFT_SEED)
        self.shifted_removal_scores = self._scores(shifted)

    @cached_property
    def _empty(self) -> Tensor:
        return self._seen(torch.zeros_like(self.clean.images.pixels[:, :1], dtype=torch.int64), 1.0)

    def _scores(self, maps: Tensor) -> Tensor:
        """``(B, k, 9)`` in the order of ``(B, k, H, W)`` maps."""
        order = removal_order(maps)
        between = [self._seen(order, step / STEPS) for step in range(1, STEPS)]
        scores = torch.stack([self._of_units(self.clean.scores[:, None]), *between, self._empty], dim=2)
        return scores.masked_fill(is_flat(*value_range(maps))[:, :, None], torch.nan)

    def _seen(self, order: Tensor, share: float) -> Tensor:
        return self._see(without_pixels(self.clean.images.pixels, order, share))


class Place(Shown):
    """The cell where a unit has its peak, and as a control another cell, as far from it for all units of an image.

    Five units take one forward each for either cell, and their gradients one forward and a backward each.
    """

    def __init__(self, clean: Clean) -> None:
        super().__init__(clean)
        rows, columns = clean.maps.shape[2:]
        cells = peak_cells(clean.maps)
        keys, count = clean.images.keys, rows * columns
        draws = keyed_uniform(keys, torch.zeros_like(keys)[:, None], (), clean.setting.seed + SHIFT_SEED).double()
        flat = cells[..., 1] * columns + cells[..., 0]
        others = (flat + 1 + ((draws + 1) / 2 * (count - 1)).long()) % count
        moved = torch.stack([others % columns, others // columns], dim=2)
        layout = (rows, columns), clean.image_size, clean.lattice
        self.cell_boxes, self.other_boxes = (cell_boxes(at, *layout) for at in (cells, moved))

    @cached_property
    def unit_scores(self) -> Tensor:
        """``(B, k)`` on the whole image."""
        return self._of_units(self.clean.scores[:, None])

    @cached_property
    def cell_scores(self) -> Tensor:
        """``(B, k)`` on the cell alone."""
        return self._see(only_boxes(self.clean.images.pixels, self.cell_boxes))

    @cached_property
    def other_cell_scores(self) -> Tensor:
        """``(B, k)`` on the other cell alone."""
        return self._see(only_boxes(self.clean.images.pixels, self.other_boxes))

    @cached_property
    def pixel_gradients(self) -> Tensor:
        """``(B, k, H, W)``."""
        return self.clean.observer.pixel_gradients(self.clean.images, self.clean.unit_ids)


class Randomised(View):
    """The clean image, shown to the model with an untrained backbone, too.

    Args:
        stages: how many of its last stages are untrained; None for all of it.
    """

    def __init__(self, clean: Clean, stages: int | None = None) -> None:
        super().__init__(clean)
        assert clean.saliency is not None
        seed, images = clean.setting.seed, clean.images
        self.randomised_saliency = clean.observer.untrained_saliency(images, clean.unit_ids, seed, stages)
        self.shifted_saliency = shifted_maps(clean.saliency, images.keys, seed + SHIFT_SEED)


class Exchanged(View):
    """The clean image, shown to the model with foreign patches in the place of its prototypes, too."""

    def __init__(self, clean: Clean) -> None:
        super().__init__(clean)
        assert clean.setting.exchange is not None
        logits = clean.setting.exchange.logits(clean.images, clean.scores)
        self.exchanged_logits, self.refitted_logits = logits


class Shortcut(View):
    """The image with the stamp of a planted shortcut, and with a patch of its mean colour in the same place."""

    def __init__(self, clean: Clean) -> None:
        super().__init__(clean)
        pixels, stamp = clean.images.pixels, clean.setting.facts.stamp
        mean = pixels.double().mean(dim=(2, 3), keepdim=True).to(pixels.dtype)
        self.predictions = self._predicted(clean.logits)
        self.stamped_predictions, self.stamped_scores = self._seen(stamp.on(pixels))
        self.plain_predictions, self.plain_scores = self._seen(stamp.filled(pixels, mean))

    def _seen(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        images = Images(pixels, self.clean.images.keys, self.clean.images.names)
        outputs = self.clean.observer.see(images, self.clean.unit_ids)
        return self._predicted(outputs.logits), outputs.scores

    def _predicted(self, logits: Tensor) -> Tensor:
        return predicted_classes(logits, self.clean.setting.facts.abstains)
