"""A finer grid from a pretrained network: strides of its last layers become dilation, which keeps every weight.

Source: Chen et al. (2017), "Rethinking atrous convolution for semantic image segmentation".
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from protometry.lightning_modules.backbones.output import in_evaluation_mode

_SIDE = 256
_Window = nn.Conv2d | nn.MaxPool2d | nn.AvgPool2d


def set_output_stride(net: nn.Module, output_stride: int, name: str) -> None:
    """Give a convolutional network one cell per ``output_stride`` pixels, in place.

    Layers that would go beyond lose their stride, and all behind them look at every second (fourth, ...) cell of the
    finer grid. In a network padded by zeros on all sides every second cell is the cell it was before.

    Args:
        net: (B, 3, H, W) -> (B, D, h, w), built of ``Conv2d`` and ``MaxPool2d``.
        output_stride: a power of two.
        name: for messages.

    Raises:
        ValueError: if the network has no such grid on its way, or a layer on it cannot be dilated.
    """
    jumps = _jumps(net)
    for layer, jump in jumps.items():
        stride = _side(layer.stride)
        if jump < output_stride < jump * stride:
            raise _impossible(name, output_stride, f"a layer goes from {jump} to {jump * stride} pixels a cell")
        if jump < output_stride or (_side(layer.kernel_size) == 1 and stride == 1):
            continue
        if isinstance(layer, nn.AvgPool2d):
            raise _impossible(name, output_stride, "its average pooling has no dilation")
        dilation = jump // output_stride
        layer.stride = _like(layer.stride, 1) if stride > 1 else layer.stride
        layer.dilation = _like(layer.dilation, dilation * _side(layer.dilation))
        if not isinstance(layer.padding, str):
            layer.padding = _like(layer.padding, dilation * _side(layer.padding))
    with in_evaluation_mode(net), torch.no_grad():
        device = next(net.parameters()).device
        side = net(torch.zeros(1, 3, _SIDE, _SIDE, device=device)).shape[-1]
    if side != _SIDE // output_stride:
        raise _impossible(name, output_stride, f"its grid is {side}×{side} for {_SIDE}×{_SIDE} pixels")


def _jumps(net: nn.Module) -> dict[_Window, int]:
    """Pixels per cell of what every convolution and pooling reads, a power of two."""
    jumps: dict[_Window, int] = {}

    def note(layer: Any, inputs: Any) -> None:
        jumps[layer] = 2 ** round(math.log2(_SIDE / inputs[0].shape[-1]))

    handles = [layer.register_forward_pre_hook(note) for layer in net.modules() if isinstance(layer, _Window)]
    try:
        with in_evaluation_mode(net), torch.no_grad():
            device = next(net.parameters()).device
            net(torch.zeros(1, 3, _SIDE, _SIDE, device=device))
    finally:
        for handle in handles:
            handle.remove()
    return jumps


def _impossible(name: str, output_stride: int, reason: str) -> ValueError:
    return ValueError(
        f"Expected argument `backbone.output_stride` to be null or possible for {name}, but got {output_stride}: "
        f"{reason}. Choose another stride or backbone, or larger images."
    )


def _like(value: Any, number: int) -> Any:
    return (number, number) if isinstance(value, tuple) else number


def _side(value: Any) -> int:
    return int(value[0] if isinstance(value, tuple) else value)
