"""ResNet backbones: torchvision's networks without pool and classifier, on request with a four times finer grid."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Literal

from torch import nn
from torchvision import models
from torchvision.models.resnet import Bottleneck, ResNet

RESNETS: dict[str, Callable[..., ResNet]] = {
    "resnet18": models.resnet18,
    "resnet34": models.resnet34,
    "resnet50": models.resnet50,
}


def resnet(name: str, strides: Literal["standard", "reduced"] = "standard") -> tuple[nn.Sequential, int]:
    """A randomly initialised ResNet up to its last residual stage.

    He et al. (2016), "Deep residual learning for image recognition", as torchvision builds it (stride in the 3×3
    convolution of a bottleneck). Reduced strides keep every weight; the first block of the third and fourth stage keeps
    its resolution, in its 3×3 convolution and in its shortcut: 28×28 instead of 7×7 cells at 224 pixels. This is not
    ``replace_stride_with_dilation``, whose grid is the same but whose receptive field is not.

    Args:
        name: a key of ``RESNETS``.
        strides: ``"standard"`` (one cell per 32 pixels) or ``"reduced"`` (one cell per 8 pixels).

    Returns:
        The network, with torchvision's parameter names, and its number of output channels.

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
