from typing import get_args

import pytest
import torch

from lightning_modules.trunks import build_trunk
from lightning_modules.trunks.sections import SECTION_STARTS, trunk_sections
from lightning_modules.trunks.trunk import TrunkName

LAST = {  # how the names of the parameters of the last section begin: block, stage or the last two blocks
    "sketch": ("block4.",),
    "resnet18": ("layer4.",),
    "resnet34": ("layer4.",),
    "resnet50": ("layer4.2.",),
    "mobilenet_v2": ("features.17.", "features.18."),
    "convnext_tiny": ("features.7.2.",),
    "bagnet33": ("layer4.2.",),
}


def test_every_trunk_has_sections():
    assert set(SECTION_STARTS) == set(get_args(TrunkName))


@pytest.mark.parametrize("name", get_args(TrunkName))
def test_sections_hold_every_parameter_once_and_in_order(name):
    with torch.device("meta"):
        trunk = build_trunk({"name": name})
    sections = trunk_sections(trunk, name)
    assert list(sections) == ["stem", "trunk_early", "trunk", "trunk_last"][-len(sections) :]
    assert [id(p) for section in sections.values() for p in section] == [id(p) for p in trunk.net.parameters()]


@pytest.mark.parametrize("name", LAST)
def test_the_last_section(name):
    with torch.device("meta"):
        trunk = build_trunk({"name": name})
    names = {id(p): n for n, p in trunk.net.named_parameters()}
    last = {names[id(p)] for p in trunk_sections(trunk, name)["trunk_last"]}
    assert last == {n for n in names.values() if n.startswith(LAST[name])}
