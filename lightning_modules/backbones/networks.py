"""Torchvision's networks without pooling and classifier, randomly initialised, optionally with a finer grid.

Every function returns the network, with torchvision's parameter names, and its number of output channels.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

from torch import nn
from torchvision import models
from torchvision.models.resnet import Bottleneck, ResNet
from torchvision.models.vgg import cfgs, make_layers

RESNETS: dict[str, Callable[..., ResNet]] = {
    "resnet18": models.resnet18,
    "resnet34": models.resnet34,
    "resnet50": models.resnet50,
}
_KEPT = {"standard": (), 13: (6,), 26: (4, 6)}  # which downsampling layers of ConvNeXt keep the resolution


def resnet(name: str, strides: Literal["standard", "reduced"] = "standard") -> tuple[nn.Sequential, int]:
    """A ResNet up to its last residual stage.

    He et al. (2016), "Deep residual learning for image recognition", as torchvision builds it (stride in the 3×3
    convolution of a bottleneck). Reduced strides keep every weight; the first block of the third and fourth stage keeps
    its resolution, in its 3×3 convolution and in its shortcut: 28×28 instead of 7×7 cells at 224 pixels. This is not
    ``replace_stride_with_dilation``, whose grid is the same but whose receptive field is not.

    Example:
        >>> import torch
        >>> net, channels = resnet("resnet18", "reduced")
        >>> net(torch.zeros(1, 3, 64, 32)).shape, channels
        (torch.Size([1, 512, 8, 4]), 512)
    """
    model = RESNETS[name](weights=None)
    if strides == "reduced":
        _keep_resolution(model.layer3)
        _keep_resolution(model.layer4)
    stages = [(key, module) for key, module in model.named_children() if key not in ("avgpool", "fc")]
    return nn.Sequential(OrderedDict(stages)), model.fc.in_features


def _keep_resolution(stage: nn.Sequential) -> None:
    block: Any = stage[0]  # a BasicBlock or a Bottleneck
    convolution = block.conv2 if isinstance(block, Bottleneck) else block.conv1
    convolution.stride = block.downsample[0].stride = (1, 1)
    block.stride = 1


def convnext(strides: Literal["standard", 13, 26] = "standard") -> tuple[nn.Sequential, int]:
    """ConvNeXt-T up to its last block.

    Liu et al. (2022), "A ConvNet for the 2020s", stochastic depth included. The finer grids are from PIPNet (Nauta
    et al. 2023): the last, or the last two, of the 2×2 downsampling layers get stride 1, which keeps every weight. The
    features are signed: the network ends in a sum, not in an activation. 13 and 26 are cells per side at 224 pixels.

    Example:
        >>> import torch
        >>> net, channels = convnext(26)
        >>> net(torch.zeros(1, 3, 64, 32)).shape, channels
        (torch.Size([1, 768, 6, 2]), 768)
    """
    model = models.convnext_tiny(weights=None)
    for index in _KEPT[strides]:
        model.features[index][1].stride = (1, 1)
    return nn.Sequential(OrderedDict(features=model.features)), model.classifier[2].in_features


def mobilenet() -> tuple[nn.Sequential, int]:
    """MobileNetV2 up to its last 1×1 convolution: the pretrained backbone that a CPU can train.

    Sandler et al. (2018), "MobileNetV2: inverted residuals and linear bottlenecks".
    """
    model = models.mobilenet_v2(weights=None)
    return nn.Sequential(OrderedDict(features=model.features)), model.last_channel


def densenet() -> tuple[nn.Sequential, int]:
    """DenseNet-169 up to its last activation, a module here and a function in torchvision.

    Huang et al. (2017), "Densely connected convolutional networks".
    """
    model = models.densenet169(weights=None)
    return nn.Sequential(OrderedDict(features=model.features, relu=nn.ReLU())), model.classifier.in_features


def vgg() -> tuple[nn.Sequential, int]:
    """VGG-19 up to its last max-pool, the backbone of the first prototype networks.

    Simonyan and Zisserman (2015), "Very deep convolutional networks for large-scale image recognition", configuration
    E, initialised as by torchvision; the classifier, 86 % of the network, is never made.
    """
    features = make_layers(cfgs["E"])
    for module in features.modules():
        if isinstance(module, nn.Conv2d) and module.bias is not None:
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(module.bias)
    return nn.Sequential(OrderedDict(features=features)), 512
