"""Heat maps over photos, in colours that remain distinguishable without colour vision."""

from __future__ import annotations

import torch
from PIL import ImageColor
from torch import Tensor

from protometry.explanations.views import AGAINST, FOR, WHITE

COLOURS = torch.tensor([ImageColor.getrgb(colour) for colour in (AGAINST, WHITE, FOR)]).div(255)
QUANTILE = 0.99  # of the absolute values of a map, which has the full colour; relevance has single very bright pixels


def scale_of(saliency: Tensor) -> tuple[float, float]:
    """The values with the first and the last colour of a heat map; several maps have one common scale.

    Minus and plus the 99th percentile of the absolute values; the largest one where that percentile is 0. The scale is
    the same for maps without negative values, which bicubic upsampling may add to any map.

    Example:
        >>> scale_of(torch.tensor([[0.0, 1.0], [2.0, 4.0]]))
        (-4.0, 4.0)
    """
    sizes = saliency.abs().flatten()
    rank = max(1, int((1 - QUANTILE) * len(sizes)))
    largest = sizes.topk(rank).values
    high = float(largest[-1]) or float(largest[0])
    return -high, high


def heat_map(image: Tensor, saliency: Tensor, scale: tuple[float, float] | None = None) -> Tensor:
    """A grey image under the colours of a map: blue below 0, white at 0 and orange above.

    Example:
        >>> heat_map(torch.zeros(3, 1, 2), torch.tensor([[0.0, 5.0]]))[:, 0, 1]  # orange for the largest
        tensor([0.5106, 0.2235, 0.0047])
    """
    low, high = scale or scale_of(saliency)
    colours = COLOURS.to(saliency.device)
    position = ((saliency.float() - low) / (high - low or 1.0)).clamp(0, 1) * (len(colours) - 1)
    below = position.floor().long().clamp(max=len(colours) - 2)
    fraction = (position - below)[..., None]
    heat = colours[below] * (1 - fraction) + colours[below + 1] * fraction
    return 0.4 * image.float().mean(dim=0) + 0.6 * heat.movedim(-1, 0)
