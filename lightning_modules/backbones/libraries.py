"""Networks of timm and torchvision as backbones: from images to a grid of features, without pooling and classifier.

Both functions return the network, randomly initialised or with weights, and the normalisation of its weights.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from inspect import signature
from itertools import takewhile
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names
from torchvision.models.vision_transformer import VisionTransformer, interpolate_embeddings

from protometry.lightning_modules.backbones.output import on_meta, remove_unused
from protometry.lightning_modules.backbones.weights import REMEDY, load_weights
from protometry.run_folder.command_line.messages import did_you_mean, requires

Statistics: TypeAlias = dict[str, list[float]]
PRETRAINED = "pretrained"  # the weights that a library has for a name
IMAGENET: Statistics = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
_BEHIND = ("avgpool", "adaptive_avg_pool", "mean", "classifier", "fc", "head")  # torchvision's poolings and classifiers


class MinusClassToken(nn.Module):
    """Patches ``(B, D, h, w)`` minus the class token ``(B, D)`` of their image."""

    def forward(self, patches: Tensor, token: Tensor) -> Tensor:
        """How patches differ from what stands for the whole image."""
        return patches - token[:, :, None, None]


class TimmGrid(nn.Module):
    """A network of timm whose features are a grid ``(B, D, h, w)``.

    Networks whose features have two axes of space end before their pooling. Tokens are laid out as the grid they come
    from, after the last norm and without class and register tokens.

    Args:
        model: without classifier, made for images of ``image_size``.
        until: name of an intermediate layer, as in ``model.feature_info``, or of another block in the sequence that
            holds the last of these; what lies behind it is removed.
        minus_class_token: whether features are patches minus the class token, if there is one.

    Raises:
        ValueError: if there is no such layer, the tokens cannot be laid out as a grid, or the class token cannot be
            read.
    """

    model: Any

    def __init__(
        self, model: nn.Module, image_size: tuple[int, int], until: str | None = None, minus_class_token: bool = False
    ) -> None:
        super().__init__()
        self.model = model
        self.nhwc = getattr(model, "output_fmt", "NCHW") == "NHWC"
        self.layer: int | None = None
        self.is_grid = until is None
        if until is not None:
            self._end_after(until)
        else:
            features = on_meta(self, image_size)
            self.is_grid = isinstance(features, Tensor) and features.dim() == 4
        if not (self.is_grid or hasattr(model, "forward_intermediates")):
            raise ValueError(
                f"Expected argument `backbone.name` to be a network whose features are a grid, but timm's "
                f"{type(model).__name__} has tokens without a place. Choose another network."
            )
        self.minus: MinusClassToken | None = None
        if minus_class_token and not self.is_grid and getattr(model, "cls_token", None) is not None:
            if "return_prefix_tokens" not in signature(self.model.forward_intermediates).parameters:
                raise ValueError(
                    "Expected argument `backbone.name` to be a network whose class token can be read, or without one, "
                    f"but timm's {type(model).__name__} returns its patches alone. Choose a ViT, DeiT, BEiT or EVA."
                )
            self.minus = MinusClassToken()
        self.norm = until is None and type(model).__name__ != "Hiera"  # timm applies its norm to pooled features only

    def _end_after(self, until: str) -> None:
        listed = [info["module"] for info in self.model.feature_info]
        container = listed[-1].rpartition(".")[0]
        blocks = self.model.get_submodule(container)
        children = blocks.named_children() if isinstance(blocks, nn.Sequential) else ()
        inside = [f"{container}.{name}" for name, _ in children]
        names = [*(name for name in listed if name not in inside), *inside]
        if until not in names:
            raise ValueError(f"Expected argument `backbone.until` to be null or one of {names}, but got {until!r}.")
        ends_at = listed.index(until if until in listed else listed[-1])
        self.model.prune_intermediate_layers([ends_at], prune_norm=True, prune_head=True)
        if until in listed:
            self.layer = ends_at
        else:
            self.model.set_submodule(container, blocks[: inside.index(until) + 1])
            self.is_grid = True

    def forward(self, images: Tensor) -> Tensor:
        """Features ``(B, D, h, w)`` of normalised images."""
        if self.is_grid:
            features: Tensor = self.model.forward_features(images)
            return features.permute(0, 3, 1, 2) if self.nhwc else features
        layers = 1 if self.layer is None else [self.layer]  # 1: the last one
        options = {"norm": self.norm, "output_fmt": "NCHW", "intermediates_only": True}
        if self.minus is not None:
            options["return_prefix_tokens"] = True
            patches, others = self.model.forward_intermediates(images, indices=layers, **options)[-1]
            difference: Tensor = self.minus(patches, others[:, 0])
            return difference
        intermediate: list[Tensor] = self.model.forward_intermediates(images, indices=layers, **options)
        return intermediate[-1]


class VisionTransformerGrid(nn.Module):
    """A vision transformer of torchvision; its features are the tokens of the patches after the last norm."""

    def __init__(self, model: VisionTransformer, minus_class_token: bool = False) -> None:
        super().__init__()
        self.minus = MinusClassToken() if minus_class_token else None
        self.conv_proj, self.class_token, self.encoder = model.conv_proj, model.class_token, model.encoder

    def forward(self, images: Tensor) -> Tensor:
        """Features ``(B, D, h, w)`` of normalised images."""
        patches = self.conv_proj(images)
        tokens = patches.flatten(2).transpose(1, 2)
        tokens = self.encoder(torch.cat([self.class_token.expand(len(images), -1, -1), tokens], dim=1))
        features: Tensor = tokens[:, 1:].transpose(1, 2).unflatten(2, patches.shape[2:])
        return features if self.minus is None else self.minus(features, tokens[:, 0])


class GraphGrid(nn.Module):
    """A traced network up to one of its operations."""

    def __init__(self, model: nn.Module, node: str) -> None:
        super().__init__()
        self.graph = create_feature_extractor(model, {node: "features"})

    def forward(self, images: Tensor) -> Tensor:
        """Features ``(B, D, h, w)`` of normalised images."""
        features: Tensor = self.graph(images)["features"]
        return features


def timm_network(
    name: str,
    image_size: tuple[int, int],
    init_args: Mapping[str, Any],
    weights: str | None,
    until: str | None,
    minus_class_token: bool = False,
) -> tuple[nn.Module, Statistics]:
    """A network of timm; transformers, whose number of tokens is fixed, are made for images of ``image_size``."""
    try:
        import timm
    except ImportError as error:
        raise ValueError(requires("timm", f"timm, which `backbone.name: timm/{name}` needs,")) from error
    if not timm.is_model(name):
        near = did_you_mean(name.split(".")[0], timm.list_models())
        raise ValueError(f"Expected argument `backbone.name` to be a network of timm, but got 'timm/{name}'.{near}")
    config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    sized = {"img_size": image_size} if config is not None and config.fixed_input_size else {}
    with _as_value_errors(f"timm/{name}", weights, sized):
        model: Any = timm.create_model(name, pretrained=weights == PRETRAINED, num_classes=0, **{**sized, **init_args})
    statistics = {"mean": list(model.pretrained_cfg["mean"]), "std": list(model.pretrained_cfg["std"])}
    whole = {f"model.{key}" for key in model.state_dict()}
    net = TimmGrid(model, image_size, until, minus_class_token)
    remove_unused(net, image_size)  # norms and poolings of its classifier
    if weights not in (None, PRETRAINED):
        cut = whole - net.state_dict().keys()
        load_weights(net, f"timm/{name}", weights, cut, translate=lambda state: _as_timm_names_them(model, state))
    return net, statistics


def torchvision_network(
    name: str,
    image_size: tuple[int, int],
    init_args: Mapping[str, Any],
    weights: str | None,
    until: str | None,
    minus_class_token: bool = False,
) -> tuple[nn.Module, Statistics]:
    """A classifier of torchvision up to the last operation whose output is a grid, or up to ``until``."""
    names = models.list_models(module=models)
    if name not in names:
        raise ValueError(
            "Expected argument `backbone.name` to be a network of torchvision, but got "
            f"'torchvision/{name}'.{did_you_mean(name, names)}"
        )
    is_transformer = name.startswith("vit_")
    if is_transformer and (image_size[0] != image_size[1] or until is not None):
        raise ValueError(
            f"Expected square images and argument `backbone.until` to be null for torchvision/{name}, but got "
            f"{image_size} pixels and {until!r}. Transformers of timm take any size and end after any block."
        )
    patch = int(name.rpartition("_")[2]) if is_transformer else 1
    if over := image_size[0] % patch:
        raise ValueError(
            f"Expected argument `image_size` to be a multiple of {patch} pixels for torchvision/{name}, but got "
            f"{image_size}. Pass `--data.image_size {max(patch, image_size[0] - over)}` or "
            f"{image_size[0] - over + patch}, or choose a transformer of timm."
        )
    sized: dict[str, Any] = {"image_size": image_size[0]} if is_transformer else {}
    sized = {"input_size": image_size} if name == "maxvit_t" else sized
    with _as_value_errors(f"torchvision/{name}", weights, sized):
        model = models.get_model(name, weights=None, **{**sized, **init_args})
    prefix = "" if is_transformer else "graph."
    whole = {f"{prefix}{key}" for key in model.state_dict()}
    if is_transformer:
        net: nn.Module = VisionTransformerGrid(model, minus_class_token)
    else:
        net = GraphGrid(model, _last_grid(model) if until is None else _layer(model, until))
    if weights is not None:
        cut = whole - net.state_dict().keys()
        load_weights(net, name, weights, cut, translate=lambda state: _as_in_grid(model, state))
    return net, IMAGENET


LIBRARIES: dict[str, Callable[..., tuple[nn.Module, Statistics]]] = {
    "timm": timm_network,
    "torchvision": torchvision_network,
}


def names_like(pattern: str) -> list[str]:
    """Names for ``backbone.name``, of timm and torchvision, that match a pattern such as ``*vit*reg4*``.

    Those of timm are left out where it is not installed.
    """
    names = [f"torchvision/{name}" for name in models.list_models(module=models)]
    try:
        import timm
    except ImportError:
        pass
    else:
        names += [f"timm/{name}" for name in timm.list_models() + timm.list_pretrained()]
    return sorted({name for name in names if fnmatch(name, pattern)})


@contextmanager
def _as_value_errors(name: str, weights: str | None, sized: Mapping[str, Any]) -> Iterator[None]:
    """Errors of a library's constructor in one line; a download fails with many types of error.

    ``sized`` are those of its arguments that follow from the size of the images.
    """
    try:
        yield
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        if weights == PRETRAINED and not isinstance(error, TypeError):
            raise FileNotFoundError(
                f"Expected argument `weights` of {name} to name weights that are cached or can be fetched, but got "
                f"{weights!r} ({type(error).__name__}: {reason}). {REMEDY}"
            ) from error
        arguments = f"arguments `image_size` {next(iter(sized.values()))} and" if sized else "argument"
        raise ValueError(
            f"Expected {arguments} `backbone.init_args` to suit {name}, but {type(error).__name__}: {reason}"
        ) from error


def _as_timm_names_them(model: Any, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The entries of a file in timm's names, of its present or former form or of the authors', without the classifier.

    timm converts former and foreign files with a function beside each architecture, which also resamples embeddings of
    positions; its own loader would ignore entries that are missing.
    """
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None)
    state = dict(state) if convert is None else convert(dict(state), model)
    classifiers = model.pretrained_cfg.get("classifier") or ()
    classifiers = (classifiers,) if isinstance(classifiers, str) else classifiers
    heads = tuple(f"{head}." for head in classifiers)
    return {f"model.{key}": value for key, value in state.items() if not key.startswith(heads)}


def _as_in_grid(model: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The entries of a file in torchvision's names, embeddings of positions resampled to the size of the images."""
    if isinstance(model, VisionTransformer):
        state = interpolate_embeddings(model.image_size, model.patch_size, OrderedDict(state))
        return dict(state)
    return {f"graph.{key}": value for key, value in state.items()}


def _last_grid(model: nn.Module) -> str:
    """The last operation before pooling and classifier."""
    names: list[str] = get_graph_node_names(model)[1]
    return list(takewhile(lambda name: not name.startswith(_BEHIND), names))[-1]


def _layer(model: nn.Module, until: str) -> str:
    names = [name for name, _ in model.named_modules() if name.count(".") < 2 and name]
    if until not in names:
        raise ValueError(f"Expected argument `backbone.until` to be null or one of {names}, but got {until!r}.")
    return until
