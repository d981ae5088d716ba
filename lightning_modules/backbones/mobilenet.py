"""MobileNetV2: torchvision's network without pool and classifier, the pretrained backbone that a CPU can train."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn
from torchvision.models import mobilenet_v2


def mobilenet() -> tuple[nn.Sequential, int]:
    """A randomly initialised MobileNetV2 up to its last 1×1 convolution.

    Sandler et al. (2018), "MobileNetV2: inverted residuals and linear bottlenecks", as torchvision builds it.

    Returns:
        The network, with torchvision's parameter names, and its number of output channels.

    Example:
        >>> import torch
        >>> net, channels = mobilenet()
        >>> net(torch.zeros(2, 3, 64, 32)).shape, channels
        (torch.Size([2, 1280, 2, 1]), 1280)
    """
    model = mobilenet_v2(weights=None)
    return nn.Sequential(OrderedDict(features=model.features)), model.last_channel
