"""The DenseNet-169 backbone: torchvision's network without pool and classifier."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn
from torchvision.models import densenet169


def densenet() -> tuple[nn.Sequential, int]:
    """A randomly initialised DenseNet-169 up to its last activation.

    Huang et al. (2017), "Densely connected convolutional networks", as torchvision builds it. Its ``features`` end in
    a BatchNorm; the ReLU that torchvision applies as a function follows as a module.

    Returns:
        The network, with torchvision's parameter names, and its number of output channels.

    Example:
        >>> import torch
        >>> net, channels = densenet()
        >>> net.eval()(torch.zeros(1, 3, 64, 32)).shape, channels
        (torch.Size([1, 1664, 2, 1]), 1664)
    """
    model = densenet169(weights=None)
    return nn.Sequential(OrderedDict(features=model.features, relu=nn.ReLU())), model.classifier.in_features
