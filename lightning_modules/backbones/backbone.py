"""The backbone of a model: input normalisation and a network from images to a grid of features.

Normalisation is the first layer, so that training, projection, perturbation and evaluation cannot disagree about it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NotRequired, TypedDict, get_args

import torch
from torch import Tensor, nn

from protometry.lightning_modules.backbones.bagnet import BAGNETS, WIDTH, bagnet
from protometry.lightning_modules.backbones.cell_places import measured_lattice
from protometry.lightning_modules.backbones.kept_features import KeptFeatures
from protometry.lightning_modules.backbones.libraries import LIBRARIES
from protometry.lightning_modules.backbones.networks import (
    RESNETS,
    SKETCH_CHANNELS,
    convnext,
    densenet,
    end_after,
    mobilenet,
    resnet,
    sketch,
    vgg,
)
from protometry.lightning_modules.backbones.normalize import Normalization, Normalize
from protometry.lightning_modules.backbones.output import check_images_apart, in_evaluation_mode, shape_of_features
from protometry.lightning_modules.backbones.output_stride import set_output_stride
from protometry.lightning_modules.backbones.receptive_field import measured_fields
from protometry.lightning_modules.backbones.weights import load_weights
from protometry.lightning_modules.bases.geometry import Geometry, Layer, Spans
from protometry.metrics.primitives.upsample import Lattice
from protometry.run_folder.command_line.messages import did_you_mean

BackboneName = Literal[
    "sketch", "resnet18", "resnet34", "resnet50", "mobilenet_v2", "vgg19", "densenet169", "convnext_tiny", "bagnet9",
    "bagnet17", "bagnet33",
]  # fmt: skip
Strides = Literal["standard", "reduced", 13, 26]

_NULL = (None, "None")  # a `null` typed on the command line arrives as the word None


class BackboneOptions(TypedDict):
    """The description of a backbone as plain data, parsed from yaml and stored in checkpoints.

    Args:
        name: a network of ours (``protometry backbones`` lists them), ``timm/NAME`` or ``torchvision/NAME``.
        class_path: instead of a name, a module from images to features (B, D, h, w), such as ``my_package.MyNet``.
        init_args: of that module, or of the network of timm or torchvision.
        weights: null, a file, an enum name of torchvision, or ``pretrained`` for timm's own.
        output_stride: pixels per cell; strides beyond it become dilation.
        strides: ``reduced``: of ResNets, one cell per 8 pixels; 13 or 26: of ConvNeXt, cells at 224 pixels.
        until: the last layer kept, such as ``layer2``, ``features.6`` or ``blocks.8``; null keeps all.
        join: earlier layers with the same grid, whose channels come before the last one's.
        width: of BagNets, channels of the stem, a multiple of 16; all others are in proportion.
        normalization: of the input; by default what the weights of the network expect.
    """

    name: NotRequired[str]
    class_path: NotRequired[str]
    init_args: NotRequired[dict[str, Any]]
    weights: NotRequired[str | None]
    output_stride: NotRequired[int | None]
    strides: NotRequired[Strides]
    until: NotRequired[str | None]
    join: NotRequired[list[str]]
    width: NotRequired[int]
    normalization: NotRequired[Normalization]


class Backbone(nn.Module):
    """Normalisation, then a network without pooling and classifier.

    Its state dict holds the network's parameter names behind ``net.``. The forward pass has no data-dependent branch:
    ``torch.fx`` can trace it with all networks in ``BackboneName``.

    Args:
        name: of the network, or the import path of its class.
        net: normalised images (B, 3, H, W) -> (B, D, h, w).
        out_channels: D.
        normalization: of the images.
        layers: on the longest path, where convolution arithmetic gives the geometry; otherwise it is measured.

    Example:
        >>> backbone = build_backbone({"name": "sketch"})
        >>> backbone(torch.rand(2, 3, 64, 32)).shape
        torch.Size([2, 128, 8, 4])
        >>> backbone.geometry((64, 32))
        Geometry(image=(64, 32), grid=(8, 4), jump=8, receptive_field=38, start=4.0)
    """

    def __init__(
        self,
        name: str,
        net: nn.Module,
        out_channels: int,
        normalization: Normalization,
        layers: list[Layer] | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.normalize = Normalize(normalization)
        self.net = net
        self.out_channels = out_channels
        self.layers = layers
        self.join: tuple[str, ...] = ()
        self.kept: KeptFeatures | None = None
        self._grids: dict[tuple[int, int], tuple[int, int]] = {}
        self._fields: dict[tuple[int, int], tuple[Spans, Spans]] = {}
        self._lattices: dict[tuple[int, int], Lattice | None] = {}
        for module in net.modules():
            if getattr(module, "inplace", False) is True:
                module.inplace = False  # type: ignore[assignment]  # explainers read inputs of layers, which it would overwrite
        self.to(memory_format=torch.channels_last)  # a fifth to a third faster on CPU, and under AMP on GPU

    def forward(self, images: Tensor) -> Tensor:
        """Features ``(B, D0, h, w)`` of images ``(B, 3, H, W)``, RGB in [0, 1], computed unless they are kept."""
        found: Tensor | None = None if self.kept is None else self.kept.find(images)
        if found is not None:
            return found
        return torch.cat(self._outputs(images), dim=1) if self.join else self._outputs(images)[0]

    def _outputs(self, images: Tensor) -> list[Tensor]:
        """What the joined layers and the network make of images."""
        outputs: list[Tensor] = []
        layers = [self.net.get_submodule(layer) for layer in self.join]
        hooks = [layer.register_forward_hook(lambda *call: outputs.append(call[-1])) for layer in layers]
        try:
            last = self.net(self.normalize(images).contiguous(memory_format=torch.channels_last))
        finally:
            for hook in hooks:
                hook.remove()
        return [*outputs, last]

    def join_layers(self, layers: Sequence[str], image_size: tuple[int, int]) -> None:
        """Put the channels of earlier layers before those of the last one.

        Depths differ in what they tell apart and in how well they locate it: behind the last block of a pretrained
        network classes are easier to separate, before it cells keep to what they show. The features are taken as they
        are, so that each depth counts by the variance it has.

        Args:
            layers: names as in ``until``, in the order in which the network runs them.
            image_size: ``(H, W)`` pixels.

        Raises:
            ValueError: if the network has no such layer, or its grid is another one.
        """
        paths = [path for path, _ in self.net.named_modules() if path]
        for layer in layers:
            fitting = [path for path in paths if path in (layer, f"model.{layer}", f"graph.{layer}")]
            if not fitting:
                raise ValueError(
                    f"Expected argument `backbone.join` to name layers of {self.name}, but it has no {layer!r}."
                    f"{did_you_mean(layer, [path.removeprefix('model.').removeprefix('graph.') for path in paths])}"
                )
            self.join += (fitting[0],)
        with in_evaluation_mode(self), torch.no_grad():
            device = next(iter(self.net.parameters())).device
            shapes = [tuple(output.shape) for output in self._outputs(torch.zeros(1, 3, *image_size, device=device))]
        if len(shapes) <= len(layers) or len({(len(shape), *shape[2:]) for shape in shapes}) > 1:
            raise ValueError(
                f"Expected argument `backbone.join` to name layers with the grid of the last one, but {list(layers)} "
                f"and the last layer of {self.name} give {shapes}. Set `backbone.output_stride`, or choose others."
            )
        self.out_channels = sum(shape[1] for shape in shapes)

    def geometry(self, image_size: tuple[int, int]) -> Geometry:
        """The geometry of the output cells for an image of ``(H, W)`` pixels.

        Raises:
            ValueError: if the network cannot process such images, or they are too small to leave one cell.
        """
        if self.layers is not None:
            return Geometry.of(self.layers, image_size)
        if image_size not in self._grids:
            _, rows, cols = shape_of_features(self.net, image_size)
            self._grids[image_size] = rows, cols
        measured, located = partial(self._measured, image_size), partial(self._located, image_size)
        return Geometry(image_size, self._grids[image_size], None, None, None, measured, located)

    def _measured(self, image_size: tuple[int, int]) -> tuple[Spans, Spans]:
        if image_size not in self._fields:
            self._fields[image_size] = measured_fields(self.net, image_size, self._grids[image_size])
        return self._fields[image_size]

    def _located(self, image_size: tuple[int, int]) -> Lattice | None:
        if image_size not in self._lattices:
            self._lattices[image_size] = measured_lattice(self.net, image_size, self._grids[image_size])
        return self._lattices[image_size]


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
        Layer(_dilated(module), _side(module.stride), _side(module.padding))
        for path, module in net.named_modules()
        if isinstance(module, nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d) and "downsample" not in path.split(".")
    ]


def build_backbone(
    options: BackboneOptions | nn.Module, image_size: tuple[int, int] = (224, 224), minus_class_token: bool = False
) -> Backbone:
    """Build a backbone, in training mode, from plain data or around a module.

    Without weights the initialisation is random and repeats under the same global seed.

    Args:
        options: a module (B, 3, H, W) -> (B, D, h, w), or its description. ``name`` is one of ``BackboneName``,
            ``timm/NAME`` or ``torchvision/NAME``; ``class_path`` instead is the import path of a module; ``init_args``
            go to the constructor of either. ``weights`` is null (the default), the path of a state dict (also
            safetensors) of the network or of the backbone or of a checkpoint of ours, a torchvision enum name such as
            ``IMAGENET1K_V1``, or ``pretrained`` for what timm has for the name. ``output_stride`` is the number of
            pixels per cell, null by default, see :func:`set_output_stride`; ``strides`` is ``"standard"`` (the
            default), ``"reduced"`` (ResNets), 13 or 26 (ConvNeXt); ``until`` the layer to end after, see
            :func:`end_after`, null (the default) for the whole network; ``join`` the layers whose features come before,
            see :meth:`Backbone.join_layers`; ``width`` (BagNets) 64 by default; ``normalization`` as in
            :class:`Normalize`, by default what the weights of the network expect, ``"imagenet"`` for modules of your
            own.
        image_size: ``(H, W)`` pixels, for which transformers are made and modules of your own are checked.
        minus_class_token: whether features of transformers of timm and torchvision with a class token are their patches
            minus that token; other features stay as they are.

    Raises:
        FileNotFoundError: if the weights cannot be found.
        ValueError: if an option is unknown, the weights do not fit, or the features are not a grid.

    Example:
        >>> backbone = build_backbone({"name": "resnet18", "strides": "reduced"})
        >>> backbone.out_channels, backbone.geometry((224, 224)).grid
        (512, (28, 28))
        >>> build_backbone({"name": "torchvision/resnet34", "output_stride": 16}).geometry((224, 224)).grid
        (14, 14)
        >>> build_backbone(nn.Conv2d(3, 8, 4, stride=4)).geometry((64, 32)).grid
        (16, 8)
    """
    if isinstance(options, nn.Module):
        return _backbone_of_module(class_path_of(options), options, {}, image_size)
    _check(options)
    backbone = _described(options, image_size, minus_class_token)
    if options.get("join"):
        backbone.join_layers(options["join"], image_size)
    return backbone


def _described(options: BackboneOptions, image_size: tuple[int, int], minus_class_token: bool) -> Backbone:
    if "class_path" in options:
        module = _imported(options["class_path"], options.get("init_args") or {})
        return _backbone_of_module(options["class_path"], module, options, image_size)
    name, weights, until = options["name"], _given(options, "weights"), _given(options, "until")
    library, _, its_name = name.partition("/")
    if its_name:
        init_args = options.get("init_args") or {}
        net, normalization = LIBRARIES[library](its_name, image_size, init_args, weights, until, minus_class_token)
        _finer(net, options)
        channels, *_ = shape_of_features(net, image_size)
        return Backbone(name, net, channels, options.get("normalization", normalization))
    net, channels = _network(name, options.get("strides", "standard"), options.get("width", WIDTH))
    whole = net.state_dict().keys()
    if until is not None:
        net, channels = end_after(net, until)
    if weights is not None:
        load_weights(net, name, weights, cut=whole - net.state_dict().keys())
    _finer(net, options)
    return Backbone(name, net, channels, options.get("normalization", "imagenet"), longest_path(net))


def class_path_of(module: nn.Module) -> str:
    """The import path of a module's class.

    Example:
        >>> class_path_of(nn.Conv2d(3, 8, 3))
        'torch.nn.modules.conv.Conv2d'
    """
    return f"{type(module).__module__}.{type(module).__qualname__}"


def _backbone_of_module(
    name: str, module: nn.Module, options: BackboneOptions, image_size: tuple[int, int]
) -> Backbone:
    if (weights := _given(options, "weights")) is not None:
        load_weights(module, name, weights, translate=dict)
    _finer(module, options)
    channels, *_ = shape_of_features(module, image_size)
    check_images_apart(module, image_size)
    return Backbone(name, module, channels, options.get("normalization", "imagenet"))


def _imported(class_path: str, init_args: Mapping[str, Any]) -> nn.Module:
    module, _, name = class_path.rpartition(".")
    try:
        kind = getattr(importlib.import_module(module), name)
        net = kind(**init_args)
    except Exception as error:  # a module of the user's may raise any type
        raise ValueError(
            f"Expected argument `backbone.class_path` to be a module that can be imported and made with "
            f"`init_args` {dict(init_args)}, but got {class_path!r} ({type(error).__name__}: {error})."
        ) from error
    if not isinstance(net, nn.Module):
        raise ValueError(
            f"Expected argument `backbone.class_path` to be a torch.nn.Module, but {class_path} gives a "
            f"{type(net).__name__}."
        )
    return net


def _finer(net: nn.Module, options: BackboneOptions) -> None:
    if (output_stride := _given(options, "output_stride")) is not None:
        set_output_stride(net, int(output_stride), options.get("name") or options["class_path"])


def _given(options: BackboneOptions, key: str) -> Any:
    value = options.get(key)
    return None if value in _NULL else value


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
    if not isinstance(options, Mapping) or not options.keys() <= set(known):
        given = list(options) if isinstance(options, Mapping) else repr(options)
        raise ValueError(f"Expected argument `backbone` to have keys of {known}, but got {given}.")
    name = options.get("name")
    if "class_path" in options:
        own, where = {"class_path", "init_args", "weights", "output_stride", "join"}, "a module"
    else:
        library = name.partition("/")[0] if isinstance(name, str) and "/" in name else None
        names = get_args(BackboneName)
        if name not in names and library not in LIBRARIES:
            near = did_you_mean(str(name), names)
            raise ValueError(
                f"Expected argument `backbone.name` to be one of {names}, 'timm/NAME' or 'torchvision/NAME', but got "
                f"{name!r}.{near} `protometry backbones PATTERN` lists names; a module of your own goes to "
                "`backbone.class_path`."
            )
        own = {"name", "init_args", "weights", "output_stride", "until", "join"} if library else set(known)
        own -= set() if library else {"class_path", "init_args"}
        where = f"networks of {library}" if library else str(name)
    if foreign := [key for key in options if key not in own | {"normalization"}]:
        raise ValueError(
            f"Expected argument `backbone` of {where} to have keys of {sorted(own)}, but got {foreign[0]!r}."
        )
    output_stride = _given(options, "output_stride")
    if output_stride is not None and output_stride not in (1, 2, 4, 8, 16, 32):
        raise ValueError(
            f"Expected argument `backbone.output_stride` to be null, 1, 2, 4, 8, 16 or 32, but got {output_stride!r}."
        )
    strides = options.get("strides", "standard")
    choices: tuple[Any, ...] = ("standard", "reduced") if name in RESNETS else ("standard",)
    choices = ("standard", 13, 26) if name == "convnext_tiny" else choices
    if strides not in choices:
        raise ValueError(
            f"Expected argument `backbone.strides` of {name} to be one of {choices}, but got {strides!r}. "
            f"'reduced' exists for {list(RESNETS)}, 13 and 26 for 'convnext_tiny', `output_stride` for all."
        )
    if "width" in options and (name not in BAGNETS or options["width"] < 1 or options["width"] % 16):
        # gradients of a strided 1×1 convolution with 8 channels, channels last, write past their memory (oneDNN)
        raise ValueError(
            f"Expected argument `backbone.width` to be a multiple of 16, and for {list(BAGNETS)} only, but got "
            f"{options['width']!r} for {name}."
        )


def _side(size: Any) -> int:
    return int(size[0] if isinstance(size, tuple) else size)


def _dilated(module: Any) -> int:
    return (_side(module.kernel_size) - 1) * _side(getattr(module, "dilation", 1)) + 1
