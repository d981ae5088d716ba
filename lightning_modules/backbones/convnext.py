"""The ConvNeXt-T backbone: torchvision's network without pool and classifier, on request with a finer grid."""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal

from torch import nn
from torchvision.models import convnext_tiny

_KEPT = {"standard": (), 13: (6,), 26: (4, 6)}  # which downsampling layers of `features` keep the resolution


def convnext(strides: Literal["standard", 13, 26] = "standard") -> tuple[nn.Sequential, int]:
    """A randomly initialised ConvNeXt-T up to its last block.

    Liu et al. (2022), "A ConvNet for the 2020s", as torchvision builds it, stochastic depth included. The finer grids
    are those of PIPNet (Nauta et al. 2023): the last, or the last two, of the 2×2 downsampling layers get stride 1,
    which keeps every weight. The features are signed: the network ends in a sum, not in an activation.

    Args:
        strides: ``"standard"`` (7×7 cells at 224 pixels), or 13 or 26 for as many cells per side at 224 pixels.

    Returns:
        The network, with torchvision's parameter names, and its number of output channels.

    Example:
        >>> import torch
        >>> net, channels = convnext(26)
        >>> net(torch.zeros(1, 3, 64, 32)).shape, channels
        (torch.Size([1, 768, 6, 2]), 768)
    """
    model = convnext_tiny(weights=None)
    for index in _KEPT[strides]:
        model.features[index][1].stride = (1, 1)
    return nn.Sequential(OrderedDict(features=model.features)), model.classifier[2].in_features
