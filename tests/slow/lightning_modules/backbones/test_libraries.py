"""Every small network of timm is a backbone, and the smallest transformer of torchvision."""

import pytest
import timm
import torch

from protometry.lightning_modules.backbones import build_backbone
from tests.lightning_modules.backbones.test_libraries import assert_grid_and_sections


@pytest.mark.parametrize("name", timm.list_models("test_*"))
def test_every_small_network_of_timm(name):
    backbone = build_backbone({"name": f"timm/{name}"}, (160, 160)).eval()
    assert backbone(torch.rand(1, 3, 160, 160)).shape[2:] == backbone.geometry((160, 160)).grid


def test_a_vision_transformer_of_torchvision():
    backbone = build_backbone({"name": "torchvision/vit_b_32"}, (64, 64)).eval()
    assert_grid_and_sections(backbone, (64, 64), 768, (2, 2), True)
