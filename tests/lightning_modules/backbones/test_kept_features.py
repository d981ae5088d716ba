"""When kept features are found: for the same pixels, network and weights, and where only values are wanted."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from protometry.explanations.relevance.recorder import record
from protometry.lightning_modules import ProtoPNet
from protometry.lightning_modules.backbones import build_backbone
from protometry.lightning_modules.backbones.kept_features import KeptFeatures

SIZE = (64, 64)


@pytest.fixture
def images():
    return torch.rand(4, 3, *SIZE, generator=torch.Generator().manual_seed(1))


def kept(backbone, folder, images, size=SIZE):
    """Features of all images, computed with a frozen backbone in evaluation mode."""
    store = KeptFeatures(backbone.requires_grad_(False).eval(), folder, size)
    store.keep(images, backbone)
    store.reload()
    return store


@pytest.mark.parametrize(
    "options",
    [
        {"name": "resnet18"},  # channels last
        {"name": "mobilenet_v2", "output_stride": 16},
        {"name": "timm/vit_tiny_patch16_224", "init_args": {"depth": 1}},
        {"name": "timm/swin_tiny_patch4_window7_224", "init_args": {"depths": [1, 1, 1, 1], "embed_dim": 24}},
    ],
    ids=lambda options: options["name"],
)
def test_features_and_what_follows_them_are_equal_bit_for_bit(tmp_path, images, options):
    backbone = build_backbone(options, SIZE)
    store, features = kept(backbone, tmp_path, images), backbone(images)
    found = store.find(images[[2, 0, 0]])
    assert torch.equal(found, features[[2, 0, 0]])
    layer = nn.Conv2d(backbone.out_channels, 5, 1)
    assert torch.equal(layer(store.find(images)), layer(features))


def test_other_pixels_are_not_found(tmp_path, images):
    store = kept(build_backbone({"name": "sketch"}), tmp_path, images[:3])
    one_bit = images[:1].clone()
    one_bit[0, 1, 5, 7] = one_bit[0, 1, 5, 7].nextafter(torch.tensor(1.0))
    for others in (images, one_bit, images[:1].flip(3), images[:1, :, :32]):
        assert store.find(others) is None
    assert store.find(images[:3]) is not None


def test_other_weights_have_other_features(tmp_path, images):
    backbone = build_backbone({"name": "sketch"})
    store, weight = kept(backbone, tmp_path, images), next(backbone.parameters())
    with torch.no_grad():
        weight[0, 0, 0, 0] += 1e-6
    assert store.find(images) is None
    assert len(KeptFeatures(backbone, tmp_path, SIZE)) == 0
    with torch.no_grad():
        weight[0, 0, 0, 0] -= 1e-6
    assert len(KeptFeatures(backbone, tmp_path, (32, 32))) == 0


@pytest.mark.parametrize("change", [{"normalization": "none"}, {"output_stride": 16}])
def test_other_networks_with_the_same_weights_have_other_features(tmp_path, images, change):
    torch.manual_seed(0)
    kept(build_backbone({"name": "resnet18"}), tmp_path, images)
    torch.manual_seed(0)
    assert len(kept(build_backbone({"name": "resnet18"}), tmp_path, images)) == 4
    torch.manual_seed(0)
    assert len(KeptFeatures(build_backbone({"name": "resnet18", **change}), tmp_path, SIZE)) == 0


def test_other_code_with_the_same_weights_is_refused(tmp_path, images):
    class Mine(nn.Conv2d):
        factor = 1e-4

        def forward(self, x):
            return self.factor * super().forward(x)

    net = Mine(3, 8, 8, stride=8)
    kept(net, tmp_path, images)
    Mine.factor = 2e-4
    with pytest.raises(ValueError, match="computed others"):
        KeptFeatures(net, tmp_path, SIZE)


def test_gradients_recordings_and_half_precision_compute_them(tmp_path, images):
    model = ProtoPNet(num_classes=4, image_size=SIZE).eval()
    model.backbone.kept = kept(model.backbone, tmp_path, images)
    assert model.backbone.kept.find(images) is not None
    assert model.backbone.kept.find(images.clone().requires_grad_()) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert model.backbone.kept.find(images) is None
    output, tape = record(model, images)
    assert tape is not None
    assert torch.equal(output.logits, model(images).logits)
