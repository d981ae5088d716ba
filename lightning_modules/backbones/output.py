"""What a network makes of images: the number of channels and the grid, or why it cannot be a backbone."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


def on_meta(net: nn.Module, image_size: tuple[int, int]) -> Any:
    """What a network returns for one image of ``(H, W)`` pixels, shapes without values if it can be run so.

    Raises:
        ValueError: if the network cannot process such images.
    """
    try:
        return _shapes(net, image_size)
    except Exception as error:  # a network of the user's may raise any type
        reason = str(error).strip().split("\n")[0]
        raise ValueError(
            f"Expected argument `image_size` to suit the backbone, but {image_size} gives {type(error).__name__}: "
            f"{reason}"
        ) from error


def remove_unused(net: nn.Module, image_size: tuple[int, int]) -> None:
    """Replace the parts of a network that its features do not depend on, which DDP would refuse to train."""
    copied = _on_meta(net)
    parameters = [parameter.requires_grad_() for parameter in copied.parameters()]
    try:
        features = copied(torch.empty(1, 3, *image_size, device="meta"))
    except (RuntimeError, NotImplementedError):  # it cannot be run without values
        return
    gradients = torch.autograd.grad(features.sum(), parameters, allow_unused=True)
    used = {id(p) for p, gradient in zip(parameters, gradients, strict=True) if gradient is not None}
    removed: list[str] = []
    for path, module in copied.named_modules():
        own = {id(parameter) for parameter in module.parameters()}
        if path and own and not own & used and not path.startswith(tuple(f"{name}." for name in removed)):
            net.set_submodule(path, nn.Identity())
            removed.append(path)


def _on_meta(net: nn.Module) -> nn.Module:
    """A copy in evaluation mode without values."""
    shapes: dict[int, Any] = {id(x): nn.Parameter(x.to("meta"), x.requires_grad) for x in net.parameters()}
    shapes |= {id(x): x.to("meta") for x in net.buffers()}
    return copy.deepcopy(net, shapes).eval()


def _shapes(net: nn.Module, image_size: tuple[int, int]) -> Any:
    with torch.no_grad():
        try:  # a copy, since networks may keep what they compute
            return _on_meta(net)(torch.empty(1, 3, *image_size, device="meta"))
        except (RuntimeError, NotImplementedError):  # it holds tensors that are neither parameters nor buffers
            device = next(iter(net.parameters()), torch.empty(0)).device
            with in_evaluation_mode(net):
                return net(torch.zeros(1, 3, *image_size, device=device))


def shape_of_features(net: nn.Module, image_size: tuple[int, int]) -> tuple[int, int, int]:
    """Channels, rows and columns of the features of an image of ``(H, W)`` pixels.

    Raises:
        ValueError: if the network cannot process such images, or does not return ``(B, D, h, w)``; the message says
            how to wrap it.
    """
    features = on_meta(net, image_size)
    if not isinstance(features, Tensor) or features.dim() != 4:
        got = tuple(features.shape) if isinstance(features, Tensor) else f"a {type(features).__name__}"
        raise ValueError(
            f"Expected a backbone to return features (B, D, h, w), but {type(net).__name__} returns {got}. Wrap it in "
            "a module that leaves out pooling and classifier, and lays tokens out as a grid without class token: "
            "`tokens[:, 1:].transpose(1, 2).unflatten(2, (h, w))`."
        )
    _, channels, rows, cols = features.shape
    if _is_grid(channels, rows, image_size) and not _is_grid(rows, cols, image_size):
        raise ValueError(
            f"Expected a backbone to return features (B, D, h, w), but {type(net).__name__} returns "
            f"{tuple(features.shape)}, which looks like (B, h, w, D). Wrap it in a module that returns "
            "`features.permute(0, 3, 1, 2)`."
        )
    if min(rows, cols) < 1:
        raise ValueError(f"Expected argument `image_size` to leave at least one latent cell, but got {image_size}.")
    return channels, rows, cols


def check_images_apart(net: nn.Module, image_size: tuple[int, int]) -> None:
    """Refuse a network whose features of an image depend on the other images of a batch.

    Raises:
        ValueError: if they do, in evaluation mode.
    """
    parameter = next(iter(net.parameters()), torch.empty(0))
    if parameter.is_meta:
        return
    with torch.random.fork_rng(devices=[]), in_evaluation_mode(net), torch.no_grad():
        images = torch.rand(2, 3, *image_size, generator=torch.Generator().manual_seed(0)).to(parameter.device)
        together, alone = net(images)[:1], net(images[:1])
    if not torch.allclose(together, alone, rtol=1e-3, atol=1e-4 * float(alone.abs().max())):
        raise ValueError(
            f"Expected the features of an image to be its own, but those of {type(net).__name__} change with the other "
            "images of a batch. Normalise over channels or with running statistics (`track_running_stats=True`)."
        )


@contextmanager
def in_evaluation_mode(net: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while, then every module in the mode it had."""
    modes = [(module, module.training) for module in net.modules()]
    net.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _is_grid(rows: int, cols: int, image_size: tuple[int, int]) -> bool:
    return cols == round(rows * image_size[1] / image_size[0])
