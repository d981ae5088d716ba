"""Heat maps over photos, in colours that remain distinguishable without colour vision."""

from __future__ import annotations

import torch
from PIL import ImageColor
from torch import Tensor

from protometry.explanations.views import AGAINST, FOR

COLOURS = torch.tensor([ImageColor.getrgb(colour) for colour in (AGAINST, FOR)]).div(255)
QUANTILE = 0.99  # of the absolute values of a map, which has the full colour; relevance has single very bright pixels


def scale_of(saliency: Tensor) -> float:
    """The absolute value with the full colour of a heat map; several maps have one common scale.

    The 99th percentile of the absolute values, or the largest one where that percentile is 0.

    Example:
        >>> scale_of(torch.tensor([[0.0, 1.0], [2.0, 4.0]]))
        4.0
    """
    sizes = saliency.abs().flatten()
    rank = max(1, int((1 - QUANTILE) * len(sizes)))
    largest = sizes.topk(rank).values
    return float(largest[-1]) or float(largest[0])


def heat_map(image: Tensor, saliency: Tensor, scale: float | None = None) -> Tensor:
    """A grey image under the colours of a map: blue below 0, white at 0 and orange above.

    Args:
        image: ``(3, H, W)`` float in [0, 1].
        saliency: ``(H, W)`` float, signed.
        scale: the absolute value with the full colour, by default the result of :func:`scale_of`.

    Returns:
        ``(3, H, W)`` float in [0, 1].

    Example:
        >>> heat_map(torch.zeros(3, 1, 2), torch.tensor([[0.0, 5.0]]))[:, 0, 1]  # orange for the largest
        tensor([0.5106, 0.2235, 0.0047])
    """
    strength = (saliency.float() / (scale or scale_of(saliency) or 1.0)).clamp(-1, 1)[..., None]
    below, above = COLOURS.to(saliency.device)
    heat = 1 - strength.abs() * (1 - torch.where(strength < 0, below, above))
    return 0.4 * image.float().mean(dim=0) + 0.6 * heat.movedim(-1, 0)
