"""Whether units look at the object at all."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from protometry.metrics.base import ItemMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_ids, check_tensor
from protometry.metrics.primitives.owned_units import add_at_units
from protometry.metrics.primitives.peaks import peak_cells
from protometry.metrics.primitives.regions import is_flat, value_range


def peak_object_share(maps: Tensor, object_masks: Tensor) -> Tensor:
    """Share of the pixels of a map's peak cell that belong to the object.

    Source: none. ``|cell ∩ m| / |cell|`` with m = ``object_masks``, where cell (i, j) of the grid is the tile of rows
    ``floor(i H / h)`` to ``ceil((i + 1) H / h) - 1``, alike for columns: what :meth:`Geometry.cell_box` returns.

    Args:
        maps: ``(B, k, h, w)`` float.
        object_masks: ``(B, H, W)`` bool.

    Returns:
        ``(B, k)`` float64 fractions; NaN for a map that is flat or not finite, and for an object that is empty or fills
        the image.
    """
    check_tensor("maps", maps, ("B", "k", "h", "w"), "float")
    check_tensor("object_masks", object_masks, (maps.shape[0], "H", "W"), "bool")
    tiles = F.adaptive_avg_pool2d(object_masks[:, None].double(), (maps.shape[2], maps.shape[3]))
    cells = peak_cells(maps)
    index = cells[..., 1] * maps.shape[3] + cells[..., 0]
    share = tiles.flatten(1).gather(1, index)
    pixels = object_masks.flatten(1)
    undefined = is_flat(*value_range(maps)) | (~pixels.any(dim=1) | pixels.all(dim=1))[:, None]
    return share.masked_fill(undefined, float("nan"))


SHARES = {"touching": 0.0, "on_object": 0.25, "mostly": 0.5}  # of the peak cell, in the order of the state


class OnObject(ItemMean):
    """Mean over units of how often their peak cell lies on the object (higher is better).

    At least a quarter of the pixels of the peak cell have to be object, on the images with the unit in the top k.
    Images that the object fills, such as photos that are cropped to the box that stands for it, are left out.
    ``summary`` adds the same for one pixel (``touching``) and for more than half of them (``mostly``).

    Example:
        >>> metric = OnObject(num_units=2)
        >>> mask = torch.tensor([[[True, True, False, False], [True, False, False, False]]])
        >>> metric.update(torch.tensor([[[[2.0, 1.0]], [[1.0, 2.0]]]]), torch.tensor([[0, 1]]), mask)
        >>> metric.compute()  # the first of two units
        tensor(0.5000, dtype=torch.float64)
    """

    unit = "fraction"
    averaged_over = "unit"
    higher_is_better = True
    undefined = "no image has an object and something beside it, or all maps are flat"
    hits: Tensor
    shown: Tensor

    def __init__(self, num_units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("hits", torch.zeros(num_units, len(SHARES), dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("shown", torch.zeros(num_units, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, maps: Tensor, unit_ids: Tensor, object_masks: Tensor) -> None:
        share = peak_object_share(maps, object_masks)
        check_ids("unit_ids", unit_ids, tuple(share.shape), len(self.shown))
        counted = (unit_ids >= 0) & share.isfinite()
        hits = torch.stack([share > 0, share >= SHARES["on_object"], share > SHARES["mostly"]], dim=2)
        self.hits = add_at_units(self.hits, unit_ids, hits & counted[:, :, None])
        self.shown = add_at_units(self.shown, unit_ids, counted)
        self.dropped = self.dropped + (~counted).sum()

    def values(self) -> Tensor:
        return self.hits[:, 1].double() / self.shown

    def _additions(self) -> dict[str, Any]:
        means = (self.hits.double() / self.shown[:, None]).nanmean(dim=0)
        return {"touching": float(means[0]), "mostly": float(means[2])}


ON_OBJECT = MetricEntry(
    "alignment/on_object",
    OnObject,
    Words(
        question="How often does a unit look at the object?",
        name="Share on the object",
        formula="mean over units of the share of images with the unit in the top 5 on which a quarter of its peak cell "
        "is object",
        source="none",
        misread="A large object is easily hit: compare with the object's share of the image. Without masks, the filled "
        "box is the object (`protocol.object`); images that it fills are left out. The cell is not what the unit saw, "
        "which is its larger field of view.",
        finding="In {value} of the images where a unit is among the strongest, it looks at the object.",
    ),
    lambda facts: OnObject(len(facts.active)),
    needs=("units", "object_mask|bounding_box"),  # any explainer will do: of units, or of the predicted class
    view="localisation",
)
