"""When kept features are found: for the same pixels, network and weights, and where only values are wanted."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from protometry.explanations.relevance.recorder import record
from protometry.lightning_modules import ProtoPNet
from protometry.lightning_modules.backbones import build_backbone, kept_features
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


def test_pixels_in_another_shape_are_another_image(tmp_path, images):
    store = kept(nn.Conv2d(3, 8, 8, stride=8), tmp_path, images)
    assert store.find(images.reshape(4, 3, 32, 128)) is None
    assert store.find(images.view(torch.int32)) is None


def small_network():
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(8)
    norm.running_var.fill_(1e-3)
    return nn.Sequential(nn.Conv2d(3, 8, 8, 8, padding=1), norm, nn.GELU(), nn.Dropout(0.0), nn.Conv2d(8, 8, 3)).eval()


def written(name, change):
    """Through `data`, which no version counter notices."""
    return lambda net: change(net.get_parameter(name).data)


def replaced(layer, module):
    return lambda net: net.__setitem__(layer, module)


def attribute(layer, **values):
    return lambda net: vars(net[layer]).update(values)


def parametrized(net):
    nn.utils.parametrize.register_parametrization(net[0], "weight", nn.Tanh(), unsafe=True)


CHANGES = {
    "weight": written("0.weight", lambda data: data[0, 0, 0, 0].add_(1e-6)),
    "weights exchanged": written("0.weight", lambda data: data.copy_(data.flip(0))),
    "bias": written("4.bias", lambda data: data.mul_(2)),
    "weight replaced": lambda net: setattr(net[0], "weight", nn.Parameter(net[0].weight.detach() * 2)),
    "weights of another memory": lambda net: setattr(net[0].weight, "data", net[0].weight.data * 2),
    "running mean": lambda net: net[1].running_mean.data.add_(1e-3),
    "running variance": lambda net: net[1].running_var.data.mul_(1.001),
    "epsilon": lambda net: setattr(net[1], "eps", 1.1e-5),
    "statistics": lambda net: setattr(net[1], "running_mean", None) or setattr(net[1], "running_var", None),
    "mode": lambda net: net[1].train(),
    "all in training": lambda net: net.train(),
    "stride": attribute(0, stride=(4, 4)),
    "dilation": attribute(4, dilation=(2, 2)),
    "edges": lambda net: (
        setattr(net[0], "padding_mode", "circular") or setattr(net[0], "_reversed_padding_repeated_twice", [1] * 4)
    ),
    "approximation": attribute(2, approximate="tanh"),
    "layer replaced": replaced(2, nn.ReLU()),
    "layer without settings": replaced(4, nn.Identity()),
    "layer added": lambda net: net.append(nn.Hardtanh(-1e-3, 1e-3)),
    "hook": lambda net: net[2].register_forward_hook(lambda module, args, output: -output) and None,
    "hook before": lambda net: net[2].register_forward_pre_hook(lambda module, args: (-args[0],)) and None,
    "forward": lambda net: setattr(net[2], "forward", torch.relu),
    "class": lambda net: setattr(net[2], "__class__", nn.Tanh),
    "parametrization": parametrized,
    "half precision": lambda net: net.half().float(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_features_of_a_network_that_changed_are_served_stale(tmp_path, images, change):
    net = small_network()
    store = kept(net, tmp_path, images)
    assert len(KeptFeatures(small_network(), tmp_path, SIZE)) == 4
    CHANGES[change](net)
    assert store.find(images) is None
    if not net[1].training:  # which features in evaluation do not depend on
        assert len(KeptFeatures(net, tmp_path, SIZE)) == 0


@pytest.mark.parametrize("change", [{"normalization": "none"}, {"output_stride": 16}])
def test_other_networks_with_the_same_weights_have_other_features(tmp_path, images, change):
    torch.manual_seed(0)
    kept(build_backbone({"name": "resnet18"}), tmp_path, images)
    torch.manual_seed(0)
    assert len(KeptFeatures(build_backbone({"name": "resnet18", **change}), tmp_path, SIZE)) == 0


@pytest.mark.parametrize("change", ["code", "torch", "torchvision", "timm", "size"])
def test_other_code_with_the_same_weights_has_other_features(tmp_path, images, monkeypatch, change):
    class Mine(nn.Conv2d):
        factor = 1e-4

        def forward(self, x):
            return self.factor * super().forward(x)

    net, distributions = Mine(3, 8, 8, stride=8), kept_features.distributions
    kept(net, tmp_path, images)
    monkeypatch.setattr(Mine, "factor", 1.0001e-4 if change == "code" else 1e-4)
    if change.startswith("t"):
        other = type("Package", (), {"version": "0"})
        monkeypatch.setattr(
            kept_features, "distributions", lambda name: [other] if name == change else distributions(name=name)
        )
    assert len(KeptFeatures(net, tmp_path, (32, 32) if change == "size" else SIZE)) == 0


def test_a_damaged_row_is_computed_and_kept_again(tmp_path, images):
    backbone = small_network().requires_grad_(False)
    store, features = kept(backbone, tmp_path, images), backbone(images)
    (path,) = store.folder.glob("*.rows")
    path.write_bytes(path.read_bytes()[: store.bytes_per_image * 2].ljust(path.stat().st_size, b"\0"))
    store = KeptFeatures(backbone, tmp_path, SIZE)
    with pytest.warns(UserWarning, match="Some features in .* are damaged: they are made again") as said:
        assert (store.find(images), store.keep(images, backbone)) == (None, 2)
    assert len(said) == 1
    assert torch.equal(store.find(images), features)


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
