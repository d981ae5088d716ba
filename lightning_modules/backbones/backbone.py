"""The backbone of a model: input normalisation and a convolutional network with known geometry.

Normalisation is the first layer, so that training, projection, perturbation and evaluation cannot disagree about it.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NotRequired, TypedDict, get_args

import torch
from torch import Tensor, nn

from protometry.lightning_modules.backbones.bagnet import BAGNETS, WIDTH, bagnet
from protometry.lightning_modules.backbones.networks import RESNETS, convnext, densenet, mobilenet, resnet, vgg
from protometry.lightning_modules.backbones.sketch import SKETCH_CHANNELS, sketch
from protometry.lightning_modules.backbones.until import end_after
from protometry.lightning_modules.backbones.weights import load_weights
from protometry.lightning_modules.geometry import Geometry, Layer

BackboneName = Literal[
    "sketch", "resnet18", "resnet34", "resnet50", "mobilenet_v2", "vgg19", "densenet169", "convnext_tiny", "bagnet9",
    "bagnet17", "bagnet33",
]  # fmt: skip
Strides = Literal["standard", "reduced", 13, 26]
Normalization = Literal["imagenet", "none"] | dict[str, list[float]]

_NULL = (None, "None")  # a `null` typed on the command line arrives as the word None
_STATISTICS = {
    "imagenet": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
    "none": {"mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0]},
}


class BackboneOptions(TypedDict):
    """The description of a backbone as plain data, parsed from yaml and stored in checkpoints."""

    name: BackboneName
    weights: NotRequired[str | None]  # null, a torchvision enum name, or a path
    strides: NotRequired[Strides]  # "reduced": ResNets, one cell per 8 pixels; 13, 26: ConvNeXt, cells at 224 pixels
    until: NotRequired[str | None]  # the last layer kept, such as "layer2" or "features.6"; null keeps all
    width: NotRequired[int]  # BagNets: channels of the stem, a multiple of 16; all others are in proportion
    normalization: NotRequired[Normalization]


class Normalize(nn.Module):
    """Subtract the mean and divide by the standard deviation of each channel.

    Args:
        normalization: ``"imagenet"`` (the statistics of torchvision's weights), ``"none"``, or
            ``{"mean": [r, g, b], "std": [r, g, b]}`` for RGB in [0, 1].

    Raises:
        ValueError: if the statistics are not three finite means and three finite standard deviations > 0.

    Example:
        >>> Normalize({"mean": [0.5, 0.5, 0.5], "std": [2.0, 2.0, 2.0]})(torch.ones(1, 3, 1, 1)).flatten()
        tensor([0.2500, 0.2500, 0.2500])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, normalization: Normalization = "imagenet") -> None:
        super().__init__()
        mean, std = _statistics(normalization)
        # not persistent: the statistics come back with the init arguments, and torchvision's files do not hold them
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Normalised images ``(B, 3, H, W)`` of RGB in [0, 1]."""
        return (images - self.mean) / self.std


class Backbone(nn.Module):
    """Normalisation, then a convolutional network without pool and classifier.

    Its state dict holds torchvision's parameter names behind ``net.``. The forward pass has no data-dependent branch:
    ``torch.fx`` can trace it.

    Example:
        >>> backbone = build_backbone({"name": "sketch"})
        >>> backbone(torch.rand(2, 3, 64, 32)).shape
        torch.Size([2, 128, 8, 4])
        >>> backbone.geometry((64, 32))
        Geometry(image=(64, 32), grid=(8, 4), jump=8, receptive_field=38, start=4.0)
    """

    def __init__(self, name: BackboneName, net: nn.Module, out_channels: int, normalization: Normalization) -> None:
        super().__init__()
        self.name: BackboneName = name
        self.normalize = Normalize(normalization)
        self.net = net
        self.out_channels = out_channels
        self.layers = longest_path(net)
        for module in net.modules():
            if isinstance(module, nn.ReLU | nn.ReLU6):
                module.inplace = False  # explainers read inputs of layers, which it would overwrite
        self.to(memory_format=torch.channels_last)  # a fifth to a third faster on CPU, and under AMP on GPU

    def forward(self, images: Tensor) -> Tensor:
        """Features ``(B, D0, h, w)`` of images ``(B, 3, H, W)``, RGB in [0, 1]."""
        features: Tensor = self.net(self.normalize(images).contiguous(memory_format=torch.channels_last))
        return features

    def geometry(self, image_size: tuple[int, int]) -> Geometry:
        """The geometry of the output cells for an image of ``(H, W)`` pixels.

        Raises:
            ValueError: if the image is too small to leave one cell.
        """
        return Geometry.of(self.layers, image_size)


def longest_path(net: nn.Module) -> list[Layer]:
    """The layers that determine the geometry: convolutions and poolings in order, without the shortcuts ``downsample``.

    A path round a block (a sum's shortcut, a concatenation's inputs) is shorter than the one through it, and centred on
    the same pixels or cropped to them; so the layers of all blocks together are the longest path. Modules must be
    registered in the order of the forward pass, and have square kernels.

    Example:
        >>> longest_path(nn.Sequential(nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.MaxPool2d(2)))
        [Layer(kernel=3, stride=2, padding=1), Layer(kernel=2, stride=2, padding=0)]
    """
    return [
        Layer(_side(module.kernel_size), _side(module.stride), _side(module.padding))
        for path, module in net.named_modules()
        if isinstance(module, nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d) and "downsample" not in path.split(".")
    ]


def build_backbone(options: BackboneOptions) -> Backbone:
    """Build a backbone, in training mode, from plain data.

    Without weights the initialisation is random and repeats under the same global seed.

    Args:
        options: ``name``; ``weights`` null (the default), a torchvision enum name such as ``IMAGENET1K_V1``, or the
            path of a state dict of torchvision's network or of the backbone; ``strides`` ``"standard"`` (the default),
            ``"reduced"`` (ResNets), 13 or 26 (ConvNeXt); ``until`` the layer to end after, see :func:`end_after`, null
            (the default) for the whole network; ``width`` (BagNets) 64 by default; ``normalization`` as in
            :class:`Normalize`, ``"imagenet"`` by default.

    Raises:
        FileNotFoundError: if the weights cannot be found.
        ValueError: if an option is unknown, or the weights do not fit.

    Example:
        >>> backbone = build_backbone({"name": "resnet18", "strides": "reduced"})
        >>> backbone.out_channels, backbone.geometry((224, 224)).grid
        (512, (28, 28))
    """
    _check(options)
    name, weights = options["name"], options.get("weights")
    net, out_channels = _network(name, options.get("strides", "standard"), options.get("width", WIDTH))
    whole = net.state_dict().keys()
    if (until := options.get("until")) not in _NULL:
        net, out_channels = end_after(net, until)
    if weights not in _NULL:
        load_weights(net, name, weights, cut=whole - net.state_dict().keys())
    return Backbone(name, net, out_channels, options.get("normalization", "imagenet"))


def _network(name: str, strides: Any, width: int) -> tuple[nn.Module, int]:
    if name in RESNETS:
        return resnet(name, strides)
    if name in BAGNETS:
        return bagnet(name, width)
    if name == "convnext_tiny":
        return convnext(strides)
    if name == "sketch":
        return sketch(), SKETCH_CHANNELS
    return {"mobilenet_v2": mobilenet, "vgg19": vgg, "densenet169": densenet}[name]()


def _check(options: BackboneOptions) -> None:
    known = list(BackboneOptions.__annotations__)
    if not options.keys() <= set(known):
        raise ValueError(f"Expected argument `backbone` to have keys of {known}, but got {list(options)}.")
    name, strides = options.get("name"), options.get("strides", "standard")
    if name not in get_args(BackboneName):
        raise ValueError(f"Expected argument `backbone.name` to be one of {get_args(BackboneName)}, but got {name!r}.")
    choices: tuple[Any, ...] = ("standard", "reduced") if name in RESNETS else ("standard",)
    choices = ("standard", 13, 26) if name == "convnext_tiny" else choices
    if strides not in choices:
        raise ValueError(
            f"Expected argument `backbone.strides` of {name} to be one of {choices}, but got {strides!r}. "
            f"'reduced' exists for {list(RESNETS)}, 13 and 26 for 'convnext_tiny'."
        )
    if "width" in options and (name not in BAGNETS or options["width"] < 1 or options["width"] % 16):
        # gradients of a strided 1×1 convolution with 8 channels, channels last, write past their memory (oneDNN)
        raise ValueError(
            f"Expected argument `backbone.width` to be a multiple of 16, and for {list(BAGNETS)} only, but got "
            f"{options['width']!r} for {name}."
        )


def _statistics(normalization: Normalization) -> tuple[list[float], list[float]]:
    statistics: Any = _STATISTICS.get(normalization) if isinstance(normalization, str) else normalization
    if isinstance(statistics, dict) and statistics.keys() == {"mean", "std"}:
        mean, std = statistics["mean"], statistics["std"]
        if len(mean) == len(std) == 3 and all(map(math.isfinite, [*mean, *std])) and min(std) > 0:
            return mean, std
    raise ValueError(
        "Expected argument `normalization` to be 'imagenet', 'none' or {'mean': [r, g, b], 'std': [r, g, b]} with "
        f"std > 0, but got {normalization!r}."
    )


def _side(size: Any) -> int:
    return int(size[0] if isinstance(size, tuple) else size)
