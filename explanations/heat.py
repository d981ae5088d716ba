"""Heat maps over photos, in colours that remain distinguishable without colour vision."""

from __future__ import annotations

import torch
from torch import Tensor

# nine equidistant colours of viridis (van der Walt and Smith 2015, CC0), interpolated linearly
VIRIDIS = torch.tensor(
    [
        *([68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141]),
        *([39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]),
    ]
).div(255)
AGAINST_AND_FOR = torch.tensor([[33, 85, 189], [255, 255, 255], [217, 95, 2]]).div(255)  # blue, white at zero, orange
QUANTILE = 0.99  # of the absolute values of a map, which has the full colour; relevance has single very bright pixels


def scale_of(saliency: Tensor) -> tuple[float, float]:
    """The values with the first and the last colour of a heat map.

    From 0 to the 99th percentile of a map without negative values, from minus to plus that percentile of the absolute
    values otherwise; the largest absolute value where that percentile is 0. Several maps have one common scale.

    Example:
        >>> scale_of(torch.tensor([[0.0, 1.0], [2.0, 4.0]])), scale_of(torch.tensor([[-3.0, 1.0]]))
        ((0.0, 4.0), (-3.0, 3.0))
    """
    sizes = saliency.abs().flatten()
    rank = max(1, int((1 - QUANTILE) * len(sizes)))
    largest = sizes.topk(rank).values
    high = float(largest[-1]) or float(largest[0])
    return (-high if bool((saliency < 0).any()) else 0.0), high


def heat_map(image: Tensor, saliency: Tensor, scale: tuple[float, float] | None = None) -> Tensor:
    """A grey image under the colours of a map: viridis from 0, or blue, white at 0 and orange if the scale is signed.

    Example:
        >>> heat_map(torch.zeros(3, 1, 2), torch.tensor([[0.0, 5.0]]))[:, 0, 1]  # yellow for the largest
        tensor([0.5953, 0.5435, 0.0871])
    """
    low, high = scale or scale_of(saliency)
    colours = (AGAINST_AND_FOR if low < 0 else VIRIDIS).to(saliency.device)
    place = ((saliency.float() - low) / (high - low or 1.0)).clamp(0, 1) * (len(colours) - 1)
    below = place.floor().long().clamp(max=len(colours) - 2)
    share = (place - below)[..., None]
    heat = colours[below] * (1 - share) + colours[below + 1] * share
    return 0.4 * image.float().mean(dim=0) + 0.6 * heat.movedim(-1, 0)
