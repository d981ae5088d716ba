"""Truncated backbones, whose cells see only a part of the image."""

from __future__ import annotations

import copy
from collections import OrderedDict

import torch
from torch import nn


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
