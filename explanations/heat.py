"""Heat maps over photos, in colours that remain distinguishable without colour vision."""

from __future__ import annotations

import torch
from matplotlib import colormaps
from PIL import ImageColor
from torch import Tensor

from protometry.explanations.views import AGAINST, FOR, WHITE

VIRIDIS = torch.tensor(colormaps["viridis"](range(256))[:, :3], dtype=torch.float32)  # van der Walt and Smith 2015
AGAINST_AND_FOR = torch.tensor([ImageColor.getrgb(colour) for colour in (AGAINST, WHITE, FOR)]).div(255)
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
        tensor([0.5959, 0.5437, 0.0864])
    """
    low, high = scale or scale_of(saliency)
    colours = (AGAINST_AND_FOR if low < 0 else VIRIDIS).to(saliency.device)
    position = ((saliency.float() - low) / (high - low or 1.0)).clamp(0, 1) * (len(colours) - 1)
    below = position.floor().long().clamp(max=len(colours) - 2)
    fraction = (position - below)[..., None]
    heat = colours[below] * (1 - fraction) + colours[below + 1] * fraction
    return 0.4 * image.float().mean(dim=0) + 0.6 * heat.movedim(-1, 0)
