"""Torchvision's networks without pooling and classifier, randomly initialised, optionally with a finer grid.

Every function returns the network, with torchvision's parameter names, and its number of output channels.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import torch
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


SKETCH_CHANNELS = 128


def sketch() -> nn.Sequential:
    """Three times [convolution, BatchNorm, max-pool by 2, ReLU], then one more convolution, BatchNorm, ReLU.

    Ours, without pretraining. 24, 48, 96, then 128 channels; all convolutions 3×3 with padding 1 and no bias (BatchNorm
    has one). 163,672 parameters; one cell per 8×8 pixels. A ReLU before the pooling would give the same values, but
    have four times as many to compute.

    Returns:
        A network ``(B, 3, H, W)`` -> ``(B, 128, H // 8, W // 8)``, non-negative.

    Example:
        >>> import torch
        >>> sketch()(torch.zeros(1, 3, 64, 48)).shape
        torch.Size([1, 128, 8, 6])
    """
    blocks: OrderedDict[str, nn.Module] = OrderedDict()
    widths = [3, 24, 48, 96, SKETCH_CHANNELS]
    for index, (before, after) in enumerate(pairwise(widths), start=1):
        block = [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after)]
        pooled = [nn.MaxPool2d(2)] if after < SKETCH_CHANNELS else []
        blocks[f"block{index}"] = nn.Sequential(*block, *pooled, nn.ReLU())
    return nn.Sequential(blocks)


def end_after(net: nn.Module, until: str) -> tuple[nn.Sequential, int]:
    """The network up to a layer, ``"layer2"``, ``"block3"`` or ``"features.6"``, and its number of output channels.

    Its cells see a smaller part of the image, and its parameters keep their names.

    Raises:
        ValueError: if there is no such layer; the error lists the layers.

    Example:
        >>> net = nn.Sequential(OrderedDict(stem=nn.Conv2d(3, 4, 3), layer1=nn.ReLU(), layer2=nn.Conv2d(4, 8, 3)))
        >>> end_after(net, "layer1")
        (Sequential(
          (stem): Conv2d(3, 4, kernel_size=(3, 3), stride=(1, 1))
          (layer1): ReLU()
        ), 4)
    """
    ends: dict[str, nn.Sequential] = {}
    before: OrderedDict[str, nn.Module] = OrderedDict()
    for name, layer in net.named_children():
        parts = list(layer.named_children()) if name == "features" else []
        for count, (part, _) in enumerate(parts, start=1):
            kept = nn.Sequential(OrderedDict(parts[:count]))
            ends[f"{name}.{part}"] = nn.Sequential(OrderedDict([*before.items(), (name, kept)]))
        before[name] = layer
        if not parts:
            ends[name] = nn.Sequential(OrderedDict(before))
    if until not in ends:
        raise ValueError(f"Expected argument `backbone.until` to be null or one of {list(ends)}, but got {until!r}.")
    with torch.no_grad():
        shapes = copy.deepcopy(ends[until]).eval().to("meta")(torch.zeros(1, 3, 64, 64, device="meta"))
    return ends[until], shapes.shape[1]
