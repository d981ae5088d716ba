"""The VGG-19 backbone: torchvision's network without classifier, the backbone of the first prototype networks."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn
from torchvision.models.vgg import cfgs, make_layers


def vgg() -> tuple[nn.Sequential, int]:
    """A randomly initialised VGG-19 up to its last max-pool.

    Simonyan and Zisserman (2015), "Very deep convolutional networks for large-scale image recognition",
    configuration E, as torchvision builds and initialises it; the classifier, 86 % of the network, is never made.

    Returns:
        The network, with torchvision's parameter names, and its number of output channels.

    Example:
        >>> import torch
        >>> net, channels = vgg()
        >>> net(torch.zeros(1, 3, 64, 32)).shape, channels
        (torch.Size([1, 512, 2, 1]), 512)
    """
    features = make_layers(cfgs["E"])
    for module in features.modules():
        if isinstance(module, nn.Conv2d) and module.bias is not None:
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(module.bias)
    return nn.Sequential(OrderedDict(features=features)), 512
