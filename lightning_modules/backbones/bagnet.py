"""BagNet backbones: a ResNet-50 whose cells see only a square of 9, 17 or 33 pixels."""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

BAGNETS = {"bagnet9": 2, "bagnet17": 3, "bagnet33": 4}  # how many of the four stages have a 3×3 convolution
WIDTH = 64  # channels of the stem of the published networks
_BLOCKS, _STRIDES, _EXPANSION = (3, 4, 6, 3), (2, 2, 2, 1), 4


class Bottleneck(nn.Module):
    """A residual bottleneck without padding; the shortcut is cropped at the end to the size of the branch.

    Deviation from the authors' code: each axis is cropped by its own difference, so that images need not be square.

    Args:
        width: inside; the output has four times as many.
        first: of its stage, with a convolution in its shortcut.

    Example:
        >>> import torch
        >>> Bottleneck(8, 4, kernel=3, stride=2, first=True)(torch.zeros(1, 8, 6, 9)).shape
        torch.Size([1, 16, 2, 4])
    """

    def __init__(self, channels: int, width: int, kernel: int, stride: int, first: bool) -> None:
        super().__init__()
        outputs = width * _EXPANSION
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, kernel, stride, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.downsample: nn.Module = nn.Identity()
        if first:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Features ``(B, 4·width, h, w)`` of features ``(B, channels, H, W)``."""
        branch = self.relu(self.bn1(self.conv1(x)))
        branch = self.relu(self.bn2(self.conv2(branch)))
        branch = self.bn3(self.conv3(branch))
        shortcut = self.downsample(x)[:, :, : branch.shape[2], : branch.shape[3]]
        features: Tensor = self.relu(branch + shortcut)
        return features


def bagnet(name: str, width: int = WIDTH) -> tuple[nn.Sequential, int]:
    """A randomly initialised BagNet up to its last residual stage, and its number of output channels.

    Brendel and Bethge (2019), "Approximating CNNs with bag-of-local-features models works surprisingly well on
    ImageNet": the blocks of a ResNet-50 without padding and max-pool, in which only the first block of the first two,
    three or four stages has a 3×3 convolution. Cell (i, j) sees rows 8i to 8i + q - 1 and columns 8j to 8j + q - 1.
    Weights are drawn from N(0, 2 / (k² · outputs)). Deviation from the authors' code: the BatchNorm of the stem has
    PyTorch's momentum, not 0.001, with which 37 % of the initial statistics would remain after 1,000 steps. A
    ``width`` of less than 64 suits training from scratch on a CPU.

    Example:
        >>> import torch
        >>> net, channels = bagnet("bagnet9")
        >>> net(torch.zeros(1, 3, 32, 48)).shape, channels
        (torch.Size([1, 2048, 3, 5]), 2048)
    """
    layers: OrderedDict[str, nn.Module] = OrderedDict(
        conv1=nn.Conv2d(3, width, 1, bias=False), conv2=nn.Conv2d(width, width, 3, bias=False)
    )
    layers |= {"bn1": nn.BatchNorm2d(width), "relu": nn.ReLU()}
    channels, inner = width, width
    for stage, (blocks, stride) in enumerate(zip(_BLOCKS, _STRIDES, strict=True), start=1):
        kernel = 3 if stage <= BAGNETS[name] else 1
        first = Bottleneck(channels, inner, kernel, stride, first=True)
        channels = inner * _EXPANSION
        rest = [Bottleneck(channels, inner, 1, 1, first=False) for _ in range(blocks - 1)]
        layers[f"layer{stage}"] = nn.Sequential(first, *rest)
        inner *= 2
    net = nn.Sequential(layers)
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return net, channels
