"""Which regions of one image are the same place, by the one rule metrics and pictures share."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.primitives.checks import check_tensor


def places(overlaps: Tensor, threshold: float = 0.5) -> Tensor:
    """For each region, the first one before it that is the same place.

    In the order given, a region is a place of its own unless its intersection over union with an earlier place exceeds
    ``threshold``; then it belongs to the first such place. All regions of a place thus overlap with the first one, the
    one that is drawn, which connected components would not guarantee: there, a chain of regions is one place although
    its ends may lie far apart.

    Args:
        overlaps: ``(B, k, k)`` float intersection over union of the regions of an image, in the order of their
            importance; NaN where either is empty.
        threshold: in [0, 1).

    Returns:
        ``(B, k)`` int64, the index of the region that stands for the place, at most its own; -1 for an empty region.

    Example:
        >>> overlaps = torch.tensor([[[1.0, 0.6, 0.2], [0.6, 1.0, 0.6], [0.2, 0.6, 1.0]]])
        >>> places(overlaps)  # the third is near the second, but the second is not a place of its own
        tensor([[0, 0, 2]])
    """
    check_tensor("overlaps", overlaps, ("B", overlaps.shape[-1], overlaps.shape[-1]), "float")
    near, has_region = overlaps > threshold, overlaps.diagonal(dim1=1, dim2=2).isfinite()
    first = torch.arange(overlaps.shape[1], device=overlaps.device).expand_as(has_region).masked_fill(~has_region, -1)
    for index in range(1, overlaps.shape[1]):  # each depends on those before it
        earlier = near[:, index, :index] & (first[:, :index] == torch.arange(index, device=first.device))
        of_another = torch.where(earlier.any(dim=1), earlier.int().argmax(dim=1), first[:, index])
        first = torch.cat([first[:, :index], of_another[:, None], first[:, index + 1 :]], dim=1)
    return first
