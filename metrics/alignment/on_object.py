"""Whether units look at the object at all."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from protometry.metrics.base import ItemMean
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.boxes import cell_boxes
from protometry.metrics.primitives.checks import check_ids, check_tensor
from protometry.metrics.primitives.owned_units import add_at_units
from protometry.metrics.primitives.peaks import peak_cells
from protometry.metrics.primitives.regions import is_flat, value_range
from protometry.metrics.primitives.upsample import Lattice


def peak_object_share(maps: Tensor, object_masks: Tensor, lattice: Lattice | None = None) -> Tensor:
    """Share of the pixels of a map's peak cell that belong to the object.

    Source: none. ``|cell ∩ m| / |cell|`` with m = ``object_masks``, where the pixels of a cell are those of
    :func:`~protometry.metrics.functional.cell_boxes`, and of :meth:`Geometry.cell_box`.

    Args:
        maps: ``(B, k, h, w)`` float.
        object_masks: ``(B, H, W)`` bool.
        lattice: start and jump of cells that do not fill the image exactly, see
            :func:`~protometry.metrics.primitives.upsample.upsample_maps`.

    Returns:
        ``(B, k)`` float64 fractions; NaN for a map that is flat or not finite, and for an object that is empty or fills
        the image.
    """
    check_tensor("maps", maps, ("B", "k", "h", "w"), "float")
    check_tensor("object_masks", object_masks, (maps.shape[0], "H", "W"), "bool")
    image_size = (object_masks.shape[1], object_masks.shape[2])
    x0, y0, x1, y1 = cell_boxes(peak_cells(maps), (maps.shape[2], maps.shape[3]), image_size, lattice).unbind(dim=-1)
    above = F.pad(object_masks.double().cumsum(dim=1).cumsum(dim=2), (1, 0, 1, 0)).flatten(1)  # pixels left and above
    corners = [(y1 + 1, x1 + 1), (y0, x0), (y0, x1 + 1), (y1 + 1, x0)]
    whole, corner, right, below = (above.gather(1, y * (image_size[1] + 1) + x) for y, x in corners)
    share = (whole + corner - right - below) / ((x1 + 1 - x0) * (y1 + 1 - y0))
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

    def update(self, maps: Tensor, unit_ids: Tensor, object_masks: Tensor, lattice: Lattice | None = None) -> None:
        share = peak_object_share(maps, object_masks, lattice)
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
