"""The 1×1 convolutions between a backbone and its prototypes."""

from __future__ import annotations

from typing import Literal, cast, get_args

from torch import Tensor, nn

from protometry.metrics.primitives.checks import check_choice

AddonKind = Literal["sigmoid", "linear"]


def addon_layers(inputs: int, channels: int, layers: int = 1, addon: AddonKind = "sigmoid") -> nn.Sequential:
    """1×1 convolutions to D ``channels`` with ReLU between them, Kaiming normal by fan-out, bias 0.

    Source: released code of Chen et al. 2019 (ProtoPNet: two layers, sigmoid) and of Rymarczyk et al. 2022 (ProtoPool:
    one layer, sigmoid).

    Raises:
        ValueError: if ``addon`` is unknown.

    Example:
        >>> addon_layers(3, 2, layers=2, addon="linear")
        Sequential(
          (0): Conv2d(3, 2, kernel_size=(1, 1), stride=(1, 1))
          (1): ReLU()
          (2): Conv2d(2, 2, kernel_size=(1, 1), stride=(1, 1))
        )
    """
    check_choice("addon", addon, get_args(AddonKind))
    modules: list[nn.Module] = []
    for layer in range(layers):
        convolution = nn.Conv2d(channels if layer else inputs, channels, 1)
        nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
        nn.init.constant_(cast(Tensor, convolution.bias), 0.0)
        modules += [nn.ReLU(), convolution] if layer else [convolution]
    return nn.Sequential(*modules, *([nn.Sigmoid()] if addon == "sigmoid" else []))
