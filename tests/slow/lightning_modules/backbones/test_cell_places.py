"""Boxes of cells against gradients, on many networks."""

from __future__ import annotations

from itertools import cycle

import pytest

from tests.lightning_modules.backbones.test_cell_places import FEW, OWN, errors

NETWORKS = [
    *OWN, "sketch", "resnet18", "resnet18 reduced", "mobilenet_v2", "bagnet17", "bagnet33", "convnext_tiny 13",
    "torchvision/resnet18", "torchvision/mobilenet_v3_small", "torchvision/squeezenet1_1", "torchvision/alexnet",
    "torchvision/shufflenet_v2_x0_5", "torchvision/mnasnet0_5", "torchvision/regnet_y_400mf", "torchvision/swin_t",
    "timm/vit_tiny_patch16_224", "timm/eva02_tiny_patch14_224", "timm/tf_efficientnet_lite0", "timm/lcnet_035",
    "timm/mobilenetv3_small_050", "timm/ghostnet_050", "timm/regnetx_002", "timm/edgenext_xx_small", "timm/pvt_v2_b0",
    "timm/starnet_s1", "timm/hgnetv2_b0", "timm/repvgg_a0", "timm/mixnet_s", "timm/fbnetc_100",
]  # fmt: skip
SIZES = [100, 131, 150, 183, 211]
NAMES = [name for name in NETWORKS if name not in FEW]


@pytest.mark.parametrize(("name", "side"), [*zip(NAMES, cycle(SIZES), strict=False)])
def test_boxes_of_many_networks(name, side):
    """Weights of either sign and the choices of max-pooling leave some pixels of a cell, which an average would not."""
    (worst, _), geometry, *_ = errors(name, side)
    assert geometry.is_located
    assert worst <= 1 + geometry.lines[0][1] / 4
