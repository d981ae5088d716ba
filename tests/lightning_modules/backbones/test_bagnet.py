from __future__ import annotations

import pytest
import torch
from torch import nn

from protometry.lightning_modules.backbones.bagnet import BAGNETS, Bottleneck, bagnet


def test_the_shortcut_loses_its_last_rows_and_columns():
    block = Bottleneck(1, 1, kernel=3, stride=2, first=True).eval()
    nn.init.zeros_(block.bn3.weight)  # the branch is 0
    nn.init.ones_(block.downsample[0].weight)
    block.downsample[1].eps = 0.0
    x = torch.arange(1.0, 43.0).view(1, 1, 6, 7)
    # every second row and column from the first: 3×4 cells of the shortcut, of which the 2×3 of the branch are kept
    expected = torch.tensor([[1.0, 3, 5], [15, 17, 19]]).expand(1, 4, 2, 3)
    assert torch.equal(block(x), expected)


def test_the_branch_by_hand():
    block = Bottleneck(4, 1, kernel=3, stride=1, first=False).eval()
    for module in block.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.ones_(module.weight)
        if isinstance(module, nn.BatchNorm2d):
            module.eps = 0.0
    nn.init.constant_(block.bn3.bias, -200.0)
    x = torch.arange(16.0).view(1, 1, 4, 4).expand(1, 4, 4, 4)
    # 4 times the sum of the window, 4·45, 4·54, 4·81 and 4·90, minus 200, plus the first 2×2 of x; negative becomes 0
    assert block(x)[0, 2].tolist() == [[0, 17], [128, 165]]


@pytest.mark.parametrize("name", BAGNETS)
def test_layers(name):
    net, channels = bagnet(name)
    assert channels == net.layer4[2].conv3.out_channels == 2048
    large = [path for path, layer in net.named_modules() if getattr(layer, "kernel_size", None) == (3, 3)]
    assert large == ["conv2", *(f"layer{stage}.0.conv2" for stage in range(1, BAGNETS[name] + 1))]
    strides = [path for path, layer in net.named_modules() if getattr(layer, "stride", None) == (2, 2)]
    assert strides == [f"layer{s}.0.{part}" for s in (1, 2, 3) for part in ("conv2", "downsample.0")]
    assert all(layer.padding == (0, 0) for layer in net.modules() if isinstance(layer, nn.Conv2d))
    assert [len(getattr(net, f"layer{stage}")) for stage in (1, 2, 3, 4)] == [3, 4, 6, 3]
