from typing import get_args

import pytest
import torch

from protometry.lightning_modules.backbones import build_backbone
from protometry.lightning_modules.backbones.backbone import BackboneName
from protometry.lightning_modules.backbones.sections import SECTION_STARTS, backbone_sections

LAST = {  # how the names of the parameters of the last section begin: block, stage or the last two blocks
    "sketch": ("block4.",),
    "resnet18": ("layer4.",),
    "resnet34": ("layer4.",),
    "resnet50": ("layer4.2.",),
    "mobilenet_v2": ("features.17.", "features.18."),
    "convnext_tiny": ("features.7.2.",),
    "bagnet33": ("layer4.2.",),
}


def test_every_backbone_has_sections():
    assert set(SECTION_STARTS) == set(get_args(BackboneName))


@pytest.mark.parametrize("name", get_args(BackboneName))
def test_sections_hold_every_parameter_once_and_in_order(name):
    with torch.device("meta"):
        backbone = build_backbone({"name": name})
    sections = backbone_sections(backbone)
    assert list(sections) == ["stem", "backbone_early", "backbone", "backbone_last"][-len(sections) :]
    assert [id(p) for section in sections.values() for p in section] == [id(p) for p in backbone.net.parameters()]


@pytest.mark.parametrize("name", LAST)
def test_the_last_section(name):
    with torch.device("meta"):
        backbone = build_backbone({"name": name})
    names = {id(p): n for n, p in backbone.net.named_parameters()}
    last = {names[id(p)] for p in backbone_sections(backbone)["backbone_last"]}
    assert last == {n for n in names.values() if n.startswith(LAST[name])}
