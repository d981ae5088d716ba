"""Networks of timm and torchvision, and modules of one's own: features, geometry, weights, and what is refused."""

from __future__ import annotations

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn
from torchvision.models import VisionTransformer, get_model

from protometry.lightning_modules import ProtoPNet, load_model
from protometry.lightning_modules.backbones import build_backbone
from protometry.lightning_modules.backbones.libraries import VisionTransformerGrid
from protometry.lightning_modules.backbones.output import shape_of_features
from protometry.lightning_modules.backbones.receptive_field import measured_fields
from protometry.lightning_modules.backbones.sections import backbone_sections
from tests.lightning_modules.backbones.test_weights import BACKBONES
from tests.lightning_modules.bases.test_load import saved

SWIN = {"embed_dim": 24, "depths": (1, 1), "num_heads": (2, 4)}
TINY = {  # options, image size, channels, grid, whether a cell sees the whole image
    "ViT": ({"name": "timm/test_vit"}, (80, 96), 64, (5, 6), True),
    "ViT with registers": ({"name": "timm/test_vit", "init_args": {"reg_tokens": 4}}, (64, 64), 64, (4, 4), True),
    "block of a ViT": ({"name": "timm/test_vit", "until": "blocks.1"}, (64, 64), 64, (4, 4), True),
    "Swin": ({"name": "timm/swin_tiny_patch4_window7_224", "init_args": SWIN}, (112, 112), 48, (14, 14), False),
    "squeeze-and-excite": ({"name": "timm/test_efficientnet"}, (96, 64), 256, (3, 2), True),
    "ResNet": ({"name": "timm/test_resnet"}, (160, 96), 96, (5, 3), False),
    "stage of a ResNet": ({"name": "timm/test_resnet", "until": "layer2"}, (96, 64), 48, (12, 8), False),
    "block between stages": ({"name": "timm/mobilenetv3_small_050", "until": "blocks.2"}, (96, 64), 24, (6, 4), True),
    "ConvNeXt": ({"name": "timm/test_convnext"}, (96, 64), 64, (3, 2), True),
    "traced": ({"name": "torchvision/resnet18"}, (96, 64), 512, (3, 2), True),
    "traced stage": ({"name": "torchvision/resnet18", "until": "layer2"}, (160, 64), 128, (20, 8), False),
}  # fmt: skip


class Patches(nn.Module):
    """Two layers of squares that do not overlap."""

    def __init__(self, width: int = 8, form: str = "grid") -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, width, 4, stride=4), nn.Conv2d(width, width, 2, stride=2)
        self.form = form

    def forward(self, images):
        features = self.second(self.first(images).relu())
        forms = {
            "grid": lambda: features,
            "last": lambda: features.permute(0, 2, 3, 1),
            "tokens": lambda: features.flatten(2).transpose(1, 2),
            "batch": lambda: features - features.mean(0),
            "list": lambda: [features],
        }
        return forms[self.form]()


PATCHES = f"{Patches.__module__}.Patches"


@pytest.fixture(scope="module", params=TINY)
def tiny(request):
    options, size, *expected = TINY[request.param]
    torch.manual_seed(0)
    return build_backbone(options, size).eval(), size, *expected


def test_grid_what_a_cell_sees_and_sections(tiny):
    assert_grid_and_sections(*tiny)


def assert_grid_and_sections(backbone, size, channels, grid, whole):
    geometry = backbone.geometry(size)
    assert backbone(torch.rand(2, 3, *size)).shape == (2, channels, *grid)
    assert (backbone.out_channels, geometry.grid, geometry.sees_everything()) == (channels, grid, whole)
    sections = backbone_sections(backbone)
    assert list(sections)[-1] == "backbone_last"
    assert [id(p) for section in sections.values() for p in section] == [id(p) for p in backbone.net.parameters()]


def test_pixels_outside_the_field_change_nothing(tiny):
    """And those at its sides do, for some image."""
    backbone, size, _, (rows, cols), whole = tiny
    if whole:
        return  # there are none
    images = torch.rand(8, 3, *size)
    with torch.no_grad():
        features = backbone(images)
    for row, col in ((0, 0), (rows // 2, cols // 2), (rows - 1, cols - 1)):
        x0, y0, x1, y1 = backbone.geometry(size).cell_box(row, col, "receptive_field")
        inside = torch.zeros(size, dtype=torch.bool)
        inside[y0 : y1 + 1, x0 : x1 + 1] = True
        with torch.no_grad():
            seen = backbone(torch.where(inside, images, 0.5))
        assert torch.equal(seen[:, :, row, col], features[:, :, row, col])


@pytest.mark.parametrize("options", [
    {"name": "sketch"}, {"name": "resnet18", "until": "layer2"}, {"name": "mobilenet_v2", "until": "features.6"},
    {"name": "bagnet17", "width": 16}, {"name": "vgg19", "until": "features.9"},
    {"name": "convnext_tiny", "until": "features.3"},
])  # fmt: skip
def test_measured_fields_are_those_of_convolution_arithmetic(options):
    backbone = build_backbone(options)
    geometry = backbone.geometry((104, 72))
    rows, cols = measured_fields(backbone.net, geometry.image, geometry.grid)
    boxes = [geometry.cell_box(row, 0, "receptive_field") for row in range(geometry.grid[0])]
    assert rows == [(y0, y1) for _, y0, _, y1 in boxes]
    boxes = [geometry.cell_box(0, col, "receptive_field") for col in range(geometry.grid[1])]
    assert cols == [(x0, x1) for x0, _, x1, _ in boxes]


def test_measuring_leaves_weights_statistics_and_randomness_alone():
    backbone = build_backbone({"name": "timm/test_resnet"}, (64, 64))
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    state = torch.get_rng_state()
    backbone.geometry((64, 64)).cell_box(0, 0, "receptive_field")
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())
    assert backbone.net.training


def test_tokens_lie_where_their_patches_do():
    """After the last norm, and without class and register tokens."""
    backbone = build_backbone({"name": "timm/test_vit", "init_args": {"reg_tokens": 4}}, (64, 96)).eval()
    images = torch.rand(2, 3, 64, 96)
    tokens = backbone.net.model.forward_features(backbone.normalize(images))[:, 5:]
    torch.testing.assert_close(backbone(images), tokens.transpose(1, 2).unflatten(2, (4, 6)))


def test_normalization_is_that_of_the_weights():
    assert build_backbone({"name": "timm/test_vit"}, (64, 64)).normalize.mean.flatten().tolist() == [0.5] * 3
    plain = build_backbone({"name": "timm/test_vit", "normalization": "none"}, (64, 64))
    assert plain.normalize.std.flatten().tolist() == [1.0] * 3


def test_sections_of_a_vision_transformer():
    backbone = build_backbone({"name": "timm/test_vit"}, (64, 64))
    names = {id(parameter): name for name, parameter in backbone.net.named_parameters()}
    firsts = {section: names[id(members[0])] for section, members in backbone_sections(backbone).items()}
    assert firsts == {
        "stem": "model.cls_token",
        "backbone_early": "model.blocks.2.norm1.weight",
        "backbone": "model.blocks.3.norm1.weight",
        "backbone_last": "model.blocks.5.norm1.weight",
    }


@pytest.mark.parametrize("until", [None, "blocks.3"])
def test_patches_minus_the_class_token(until):
    """The first of the five tokens before the patches of a ViT with registers."""
    options = {"name": "timm/test_vit", "init_args": {"reg_tokens": 4}, "until": until}
    torch.manual_seed(0)
    net = build_backbone(options, (64, 48), minus_class_token=True).net.eval()
    images = torch.rand(2, 3, 64, 48)
    tokens = net.model.forward_features(images)  # what lies behind `until` is removed
    expected = (tokens[:, 5:] - tokens[:, :1]).transpose(1, 2).unflatten(2, (4, 3))
    assert torch.equal(net(images), expected)


def test_patches_minus_the_class_token_of_torchvision():
    torch.manual_seed(0)
    model = VisionTransformer(image_size=32, patch_size=8, num_layers=1, num_heads=2, hidden_dim=8, mlp_dim=8)
    plain, minus = (VisionTransformerGrid(model, less).eval() for less in (False, True))
    seen = []
    model.encoder.register_forward_hook(lambda module, args, output: seen.append(output))
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(minus(images), plain(images) - seen[0][:, 0, :, None, None])


def test_without_a_class_token_features_stay_as_they_are():
    """And where it cannot be read, the network is refused."""
    options = {"name": "timm/test_vit", "init_args": {"class_token": False, "global_pool": "avg"}}
    for name in (options, {"name": "timm/test_convnext"}, {"name": "sketch"}):
        nets = []
        for minus in (False, True):
            torch.manual_seed(0)
            nets.append(build_backbone(name, (64, 64), minus_class_token=minus).eval())
        images = torch.rand(1, 3, 64, 64)
        assert torch.equal(nets[0](images), nets[1](images))
    with pytest.raises(ValueError, match="whose class token can be read, or without one, but timm's Cait returns"):
        build_backbone({"name": "timm/cait_xxs24_224", "init_args": {"depth": 1}}, (64, 64), minus_class_token=True)


# -- output stride -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("options", [
    {"name": "mobilenet_v2"}, {"name": "resnet18"}, {"name": "torchvision/resnet18", "until": "layer3"},
    {"name": "timm/mobilenetv2_035", "until": "blocks.4"},
], ids=str)  # fmt: skip
def test_every_second_cell_is_the_cell_it_was(options):
    size, rows = (64, 96), 4 if "until" in options else 2
    torch.manual_seed(0)
    plain = build_backbone(options, size).double().eval()
    finer = build_backbone(options | {"output_stride": 32 // rows}, size).double().eval()
    finer.load_state_dict(plain.state_dict())
    images = torch.rand(1, 3, *size, dtype=torch.float64)
    with torch.no_grad():
        coarse, fine = plain(images), finer(images)
    assert fine.shape[2:] == finer.geometry(size).grid == (2 * rows, 3 * rows)
    torch.testing.assert_close(fine[:, :, ::2, ::2], coarse)
    boxes = [b.geometry(size).cell_box(r, r, "receptive_field") for b, r in ((plain, 1), (finer, 2))]
    assert boxes[0] == boxes[1]


@pytest.mark.parametrize(("options", "message"), [
    ({"name": "timm/test_vit", "output_stride": 8}, "a layer goes from 1 to 16 pixels a cell"),
    ({"name": "densenet169", "output_stride": 16}, "average pooling has no dilation"),
    ({"name": "convnext_tiny", "output_stride": 2}, "a layer goes from 1 to 4 pixels a cell"),
    ({"name": "sketch", "output_stride": 16}, "its grid is 32×32"),
    ({"name": "sketch", "output_stride": 12}, "null, 1, 2, 4, 8, 16 or 32, but got 12"),
])  # fmt: skip
def test_strides_that_a_network_cannot_have(options, message):
    with pytest.raises(ValueError, match=message), torch.device("meta"):
        build_backbone(options, (64, 64))


# -- what is refused ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("options", "message"), [
    ({"name": "timm/test_vitt"}, r"a network of timm, but got 'timm/test_vitt'\. Did you mean"),
    ({"name": "torchvision/resnet19"}, r"a network of torchvision, but .* Did you mean"),
    ({"name": "keras/resnet"}, "'timm/NAME' or 'torchvision/NAME', but got 'keras/resnet'"),
    ({"name": "timm/test_vit", "until": "blocks.9"}, r"`backbone.until` to be null or one of \['blocks.0'"),
    ({"name": "timm/mobilenetv3_small_050", "until": "blocks.6"}, r"one of \['bn1', 'blocks.0', 'blocks.1', "),
    ({"name": "torchvision/resnet18", "until": "layer9"}, r"`backbone.until` to be null or one of \['conv1'"),
    ({"name": "torchvision/vit_b_32", "until": "encoder"}, "`backbone.until` to be null for torchvision/vit_b_32"),
    ({"name": "timm/test_vit", "init_args": {"depht": 2}}, "`backbone.init_args` to suit timm/test_vit, .*depht"),
    ({"name": "timm/inception_v4"}, "`image_size` to suit the backbone, .*Kernel size"),
    ({"name": "timm/test_vit", "strides": "reduced"}, "of networks of timm to have keys of .*, but got 'strides'"),
    ({"name": "resnet18", "init_args": {}}, "of resnet18 to have keys of .*, but got 'init_args'"),
    ({"class_path": PATCHES, "width": 8}, "of a module to have keys of .*, but got 'width'"),
    ({"class_path": PATCHES, "init_args": {"size": 1}}, "can be imported and made with .*size"),
    ({"class_path": "no_package.Net"}, "can be imported .*No module named 'no_package'"),
    ({"class_path": "collections.OrderedDict"}, "gives a OrderedDict"),
    ({"class_path": PATCHES, "init_args": {"form": "last"}}, r"looks like \(B, h, w, D\).*permute\(0, 3, 1, 2\)"),
    ({"class_path": PATCHES, "init_args": {"form": "tokens"}}, r"returns \(1, 48, 8\).*unflatten"),
    ({"class_path": PATCHES, "init_args": {"form": "list"}}, "returns a list"),
    ({"class_path": PATCHES, "init_args": {"form": "batch"}}, "change with the other images of a batch"),
])  # fmt: skip
def test_what_is_no_backbone(options, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        build_backbone(options, (64, 48))


def test_images_of_another_size_are_refused():
    options, size, *_ = TINY["Swin"]
    with pytest.raises(ValueError, match=r"`image_size` to suit the backbone, but \(128, 128\) gives AssertionError"):
        build_backbone(options, size).geometry((128, 128))
    with pytest.raises(ValueError, match=r"to be a multiple of 32 .*\(70, 70\)\. Pass `--data.image_size 64` or 96"):
        build_backbone({"name": "torchvision/vit_b_32"}, (70, 70))
    with pytest.raises(ValueError, match=r"`image_size` \(70, 70\) and `backbone.init_args` to suit timm/xcit_nano"):
        build_backbone({"name": "timm/xcit_nano_12_p16_224"}, (70, 70))


# -- weights -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("options", "network", "ending"), [
    ({"name": "timm/test_vit"}, lambda: timm.create_model("test_vit", img_size=64), "pth"),
    ({"name": "timm/test_resnet", "until": "layer2"}, lambda: timm.create_model("test_resnet"), "safetensors"),
    ({"name": "timm/mobilenetv3_small_050", "until": "blocks.2"},
     lambda: timm.create_model("mobilenetv3_small_050"), "pth"),
    ({"name": "torchvision/mobilenet_v3_small"}, lambda: get_model("mobilenet_v3_small"), "pth"),
    ({"class_path": PATCHES}, Patches, "pth"),
    ({"class_path": PATCHES}, Patches, "safetensors"),
])  # fmt: skip
def test_files_of_the_network_and_of_the_backbone(options, network, ending, tmp_path):
    write = save_file if ending == "safetensors" else torch.save
    state = {name: value + 1 for name, value in network().state_dict().items()}
    write(state, tmp_path / f"network.{ending}")
    backbone = build_backbone({**options, "weights": str(tmp_path / f"network.{ending}")}, (64, 64))
    kept = {name.removeprefix("model.").removeprefix("graph."): v for name, v in backbone.net.state_dict().items()}
    assert kept
    assert all(torch.equal(value, state[name]) for name, value in kept.items())
    own = {name: value.contiguous() for name, value in backbone.state_dict().items()}
    write(own, tmp_path / f"backbone.{ending}")
    again = build_backbone({**options, "weights": str(tmp_path / f"backbone.{ending}")}, (64, 64))
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), backbone.parameters(), strict=True))


def test_a_file_with_a_missing_entry_is_refused(tmp_path):
    """timm's own loader would keep random values for it."""
    state = timm.create_model("test_vit", img_size=64).state_dict()
    del state["blocks.1.norm1.weight"]
    torch.save(state, tmp_path / "part.pth")
    with pytest.raises(ValueError, match=r"of timm/test_vit or of the backbone, (?s:.)*blocks\.1\.norm1\.weight"):
        build_backbone({"name": "timm/test_vit", "weights": str(tmp_path / "part.pth")}, (64, 64))


def test_positions_are_resampled_to_the_size_of_the_images(tmp_path):
    state = timm.create_model("test_vit", img_size=160).state_dict()
    torch.save(state, tmp_path / "large.pth")
    options = {"name": "timm/test_vit", "weights": str(tmp_path / "large.pth")}
    assert torch.equal(build_backbone(options, (160, 160)).net.model.pos_embed, state["pos_embed"])
    assert build_backbone(options, (64, 96)).net.model.pos_embed.shape[1] == 1 + 4 * 6


def test_pretrained_weights_that_cannot_be_fetched(monkeypatch):
    monkeypatch.setattr("timm.create_model", lambda *_, **options: 1 / 0 if options["pretrained"] else None)
    with pytest.raises(FileNotFoundError, match=r"cached or can be fetched, but got 'pretrained' \(ZeroDivisionError"):
        build_backbone({"name": "timm/test_vit", "weights": "pretrained"}, (64, 64))


@pytest.mark.skipif(not BACKBONES.is_dir(), reason=f"{BACKBONES} is absent; set PROTOMETRY_DATA to the data folder")
def test_real_weights_give_the_features_of_timm():
    file = BACKBONES / "tf_efficientnet_lite0_imagenet.pt"
    backbone = build_backbone({"name": "timm/tf_efficientnet_lite0", "weights": str(file)}).eval()
    model = timm.create_model("tf_efficientnet_lite0").eval()
    model.load_state_dict(torch.load(file, weights_only=True))
    images = torch.rand(1, 3, 224, 224)
    torch.testing.assert_close(backbone(images), model.forward_features((images - 0.5) / 0.5))


# -- modules of one's own ----------------------------------------------------------------------------------------------
def test_a_module_handed_over_comes_back_from_a_checkpoint(tmp_path):
    images = torch.rand(2, 3, 64, 64)
    model = ProtoPNet(num_classes=3, image_size=(64, 64), backbone=Patches(width=12)).eval()
    path = saved(model, tmp_path / "x.ckpt")
    assert model.hparams["backbone"] == {"class_path": PATCHES}
    assert not any(isinstance(value, nn.Module) for value in model.hparams.values())
    again = load_model(path, allow_classes=["tests"], backbone=Patches(width=12))
    assert torch.equal(again(images).logits, model(images).logits)
    with pytest.raises(ValueError, match="allow it with `--allow_classes tests`"):
        load_model(path)
    with pytest.raises(ValueError, match="Expected weights of ProtoPNet"):
        load_model(path, allow_classes=["tests"])


def test_a_module_by_its_import_path(tmp_path):
    options = {"class_path": PATCHES, "init_args": {"width": 12}}
    model = ProtoPNet(num_classes=3, image_size=(64, 64), backbone=options).eval()
    again = load_model(saved(model, tmp_path / "x.ckpt"), allow_classes=["tests"])
    assert torch.equal(again(torch.ones(1, 3, 64, 64)).logits, model(torch.ones(1, 3, 64, 64)).logits)


@pytest.mark.parametrize("name", ["test_convnext", "test_vit2", "test_vit3", "test_mambaout"])
def test_every_parameter_is_used(name):
    """DDP refuses to train others, such as those of a classifier's norm or pooling."""
    backbone = build_backbone({"name": f"timm/{name}"}, (64, 64))
    backbone(torch.rand(2, 3, 64, 64)).sum().backward()
    assert all(parameter.grad is not None for parameter in backbone.parameters())


def test_a_network_that_keeps_what_it_computes_is_left_as_it_is():
    """As Swin v2 of timm does with its coordinates: only shapes are computed when a grid is asked for."""

    class Keeping(nn.Conv2d):
        def forward(self, images):
            features = super().forward(images)
            self.register_buffer("last", features)
            return features

    net = Keeping(3, 8, 8, stride=8)
    assert shape_of_features(net, (64, 32)) == (8, 8, 4)
    assert list(net.buffers()) == []
