from __future__ import annotations

import copy
import re
from collections import OrderedDict
from functools import cache

import pytest
import torch
from jsonargparse import ArgumentError, ArgumentParser
from torch import nn
from torchvision import models
from torchvision.models import convnext, densenet, vgg
from torchvision.transforms.functional import normalize

from protometry.lightning_modules.backbones import Backbone, BackboneOptions, Normalize, build_backbone
from protometry.lightning_modules.backbones.backbone import longest_path
from protometry.lightning_modules.bases.geometry import Layer
from tests.rounding import terms_of, tolerance

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}

# name, strides, channels, jump, receptive field, start, parameters, side of the grid at 224 and 256 pixels
TABLE = [
    ("resnet18", "standard", 512, 32, 435, 0.5, 11_176_512, (7, 8)),
    ("resnet34", "standard", 512, 32, 899, 0.5, 21_284_672, (7, 8)),
    ("resnet50", "standard", 2048, 32, 427, 0.5, 23_508_032, (7, 8)),
    ("resnet18", "reduced", 512, 8, 227, 0.5, 11_176_512, (28, 32)),
    ("resnet34", "reduced", 512, 8, 467, 0.5, 21_284_672, (28, 32)),
    ("resnet50", "reduced", 2048, 8, 235, 0.5, 23_508_032, (28, 32)),
    ("mobilenet_v2", "standard", 1280, 32, 491, 0.5, 2_223_872, (7, 8)),
    ("sketch", "standard", 128, 8, 38, 4.0, 163_672, (28, 32)),
    ("vgg19", "standard", 512, 32, 268, 16.0, 20_024_384, (7, 8)),
    ("densenet169", "standard", 1664, 32, 3351, 14.5, 12_484_480, (7, 8)),
    ("convnext_tiny", "standard", 768, 32, 1688, 16.0, 27_818_592, (7, 8)),
    ("convnext_tiny", 13, 768, 16, 1400, 16.0, 27_818_592, (13, 15)),
    ("convnext_tiny", 26, 768, 8, 816, 12.0, 27_818_592, (26, 30)),
    ("bagnet9", "standard", 2048, 8, 9, 4.5, 13_639_744, (27, 31)),
    ("bagnet17", "standard", 2048, 8, 17, 8.5, 14_164_032, (26, 30)),
    ("bagnet33", "standard", 2048, 8, 33, 16.5, 16_261_184, (24, 28)),
]
BACKBONES = [row[:2] for row in TABLE]
DEEP = ("resnet34", "resnet50", "densenet169", "bagnet17", "bagnet33", "vgg19", "convnext_tiny")
OTHER_STRIDES = ("reduced", 13)  # values of these networks are computed with one such stride, or with none
COMPUTED = [row for row in BACKBONES if row[1] not in OTHER_STRIDES or row[0] == "resnet18"]
PADDED = ["resnet18", "resnet34", "resnet50", "mobilenet_v2", "sketch"]  # one cell is left of any image of 8 pixels


@cache
def shared_backbone(name: str, strides: str) -> Backbone:
    """Built once for the tests that only read it."""
    torch.manual_seed(0)
    return build_backbone({"name": name, "strides": strides}).eval()


@cache
def without_values(name: str, strides: str) -> Backbone:
    with torch.device("meta"):
        return build_backbone({"name": name, "strides": strides}).eval()


@pytest.mark.parametrize(("name", "strides", "channels", "jump", "field", "start", "parameters", "grids"), TABLE)
def test_geometry_is_that_of_the_published_table(name, strides, channels, jump, field, start, parameters, grids):
    backbone = without_values(name, strides)
    for side, cells in zip((224, 256), grids, strict=True):
        geometry = backbone.geometry((side, side))
        assert geometry.image == (side, side)
        assert geometry.grid == (cells, cells)
        assert (geometry.jump, geometry.receptive_field, geometry.start) == (jump, field, start)
    assert backbone.out_channels == channels
    assert sum(parameter.numel() for parameter in backbone.parameters()) == parameters
    for size in [(223, 321)] if (name, strides) in COMPUTED else [(75, 50), (223, 321)]:
        features = backbone(torch.zeros(1, 3, *size, device="meta"))
        assert features.shape == (1, channels, *backbone.geometry(size).grid), size


def thin(backbone: Backbone, name: str) -> nn.Module:
    """The same layers with one channel or a few, where the whole network would take too long."""
    if name == "vgg19":
        net = vgg.make_layers([width if width == "M" else 1 for width in vgg.cfgs["E"]])
    elif name == "densenet169":
        net = densenet.DenseNet(1, (6, 12, 32, 32), 2, 1).features
    elif name == "convnext_tiny":
        stages = [convnext.CNBlockConfig(1, 1, depth) for depth in (3, 3, 9)] + [convnext.CNBlockConfig(1, None, 3)]
        net = convnext.ConvNeXt(stages).features
        for layer, original in zip(net.modules(), backbone.net.features.modules(), strict=True):
            if isinstance(layer, nn.Conv2d):
                layer.stride = original.stride
    else:
        return copy.deepcopy(backbone.net)
    assert longest_path(net) == backbone.layers
    return net


def all_positive(net: nn.Module) -> nn.Module:
    """The same wiring with averaging weights: no gradient is cut or cancelled, its support is the receptive field."""
    net = net.double().eval()
    for parent in list(net.modules()):
        for key, module in list(parent.named_children()):
            if isinstance(module, nn.MaxPool2d):
                setattr(parent, key, nn.AvgPool2d(module.kernel_size, module.stride, module.padding))
            elif isinstance(module, nn.LayerNorm):
                setattr(parent, key, nn.Identity())  # over channels: no matter for cells
            elif isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.constant_(module.weight, 1 / module.weight[0].numel())
                module.bias = None
        if isinstance(parent, convnext.CNBlock):
            nn.init.ones_(parent.layer_scale)
    return net


def supports(net: nn.Module, size: tuple[int, int], rows: list[int]) -> list[tuple[int, int, int, int]]:
    """Inclusive pixels (x0, y0, x1, y1) that the first cell of each row depends on."""
    images = torch.full((1, 3, *size), 1e-6, dtype=torch.float64, requires_grad=True)
    cells = net(images)[0, :, :, 0].sum(dim=0)
    boxes = []
    for row in rows:
        gradient = torch.autograd.grad(cells[row], images, retain_graph=True)[0][0].abs().sum(dim=0)
        y, x = gradient.sum(dim=1).nonzero().flatten(), gradient.sum(dim=0).nonzero().flatten()
        boxes.append((int(x[0]), int(y[0]), int(x[-1]), int(y[-1])))
    return boxes


def assert_receptive_field(name: str, strides: str) -> None:
    """That it is the support of the gradient."""
    backbone = without_values(name, strides) if name in ("densenet169", "vgg19") else shared_backbone(name, strides)
    field, jump = backbone.geometry((2048, 64)).receptive_field, backbone.geometry((2048, 64)).jump
    width = 8 if name in PADDED else 40  # narrow, but wide enough for one cell
    geometry = backbone.geometry(((field // jump + 4) * jump, width))  # a strip just long enough to hold a whole field
    rows = [0, geometry.grid[0] // 2, geometry.grid[0] - 1]
    boxes = supports(all_positive(thin(backbone, name)), geometry.image, rows)
    assert boxes == [geometry.cell_box(row, 0, "receptive_field") for row in rows]
    assert boxes[1][3] - boxes[1][1] + 1 == field  # the middle one is not clipped


@pytest.mark.parametrize(("name", "strides"), [row for row in BACKBONES if row[0] not in DEEP])
def test_receptive_field_is_the_support_of_the_gradient(name, strides):
    """Of deep networks in ``tests/slow``."""
    assert_receptive_field(name, strides)


def test_receptive_field_of_sketch_with_its_own_random_weights():
    torch.manual_seed(0)
    backbone = build_backbone({"name": "sketch"}).eval()
    images = torch.rand(32, 3, 72, 88, requires_grad=True)
    backbone(images)[:, :, 4, 5].sum().backward()
    touched = (images.grad != 0).any(dim=0).any(dim=0)
    # centre 4 + 8·4 = 36 and 4 + 8·5 = 44, field 38: pixels 17..54 and 25..62
    rows, columns = touched.any(1).nonzero().flatten(), touched.any(0).nonzero().flatten()
    assert (int(rows[0]), int(rows[-1]), int(columns[0]), int(columns[-1])) == (17, 54, 25, 62)


def test_longest_path_leaves_out_shortcuts():
    backbone = without_values("resnet18", "standard")
    assert len(backbone.layers) == 18  # 17 convolutions (the shortcuts are the other three) and one max-pool
    assert backbone.layers[:2] == [Layer(7, 2, 3), Layer(3, 2, 1)]
    assert longest_path(nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(1, 1, 5))) == [Layer(2, 2, 0), Layer(5, 1, 0)]


def test_geometry_refuses_an_image_without_a_cell():
    with pytest.raises(ValueError, match="Expected argument `image_size` to leave at least one latent cell"):
        shared_backbone("sketch", "standard").geometry((7, 64))


@pytest.mark.parametrize(
    ("name", "until", "channels", "jump", "field"),
    [
        ("sketch", "block3", 96, 8, 22),
        ("resnet18", "layer2", 128, 8, 99),
        ("mobilenet_v2", "features.6", 32, 8, 59),
        ("densenet169", "features.transition1", 128, 8, 63),
        ("bagnet9", "layer1", 256, 2, 5),
    ],
)
def test_until_ends_earlier_with_the_same_weights(tmp_path, name, until, channels, jump, field):
    whole = shared_backbone(name, "standard")
    torch.save(whole.state_dict(), tmp_path / "whole.pt")
    backbone = build_backbone({"name": name, "until": until, "weights": str(tmp_path / "whole.pt")}).eval()
    geometry, images = backbone.geometry((64, 96)), torch.rand(1, 3, 64, 96)
    assert (backbone.out_channels, geometry.jump, geometry.receptive_field) == (channels, jump, field)
    seen = []
    hook = whole.net.get_submodule(until).register_forward_hook(lambda *arguments: seen.append(arguments[2]))
    with torch.inference_mode():
        whole(images)
        assert torch.equal(backbone(images), seen[0])
    hook.remove()
    assert seen[0].shape == (1, channels, *geometry.grid)
    torch.save(backbone.state_dict(), tmp_path / "part.pt")
    build_backbone({"name": name, "until": until, "weights": str(tmp_path / "part.pt")})


def test_until_names_the_layers_that_exist():
    with pytest.raises(ValueError, match=r"backbone.until` to be null or one of \['block1', .*'block4'\], but got 'a'"):
        build_backbone({"name": "sketch", "until": "a"})


def test_joined_layers_come_before_the_last_one():
    weights = {"name": "mobilenet_v2", "output_stride": 8}
    torch.manual_seed(0)
    parts = [build_backbone(weights | {"until": until}).eval() for until in ("features.8", "features.10")]
    parts[0].net.load_state_dict({key: parts[1].net.state_dict()[key] for key in parts[0].net.state_dict()})
    joined = build_backbone(weights | {"until": "features.10", "join": ["features.8"]}).eval()
    joined.load_state_dict(parts[1].state_dict())
    images = torch.rand(2, 3, 64, 96)
    with torch.inference_mode():
        assert torch.equal(joined(images), torch.cat([part(images) for part in parts], dim=1))
    assert joined.out_channels == 128
    assert joined.geometry((64, 96)) == parts[1].geometry((64, 96))
    assert copy.deepcopy(joined)(images).shape == (2, 128, 8, 12)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ("block9", r"no 'block9'. Did you mean 'block\d'"),
        ("block1", r"give \[\(1, 24, 112, 112\), \(1, 128, 28, 28\)\]"),
    ],
)
def test_only_layers_with_the_grid_of_the_last_one_are_joined(layer, message):
    with pytest.raises(ValueError, match=f"Expected argument `backbone.join` .*{message}"):
        build_backbone({"name": "sketch", "join": [layer]})


@pytest.mark.parametrize("name", ["bagnet9", "bagnet33"])
def test_width_of_a_bagnet_scales_every_layer(name):
    whole, narrow = without_values(name, "standard"), build_backbone({"name": name, "width": 16})
    assert narrow.layers == whole.layers
    assert narrow.out_channels == whole.out_channels // 4 == 512
    for key, value in narrow.state_dict().items():
        wide = whole.state_dict()[key].shape
        assert value.shape[2:] == wide[2:], key
        assert all(n in (m // 4, 3) for n, m in zip(value.shape[:2], wide[:2], strict=True)), key


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_reduced_strides_change_no_weight_and_four_strides(name):
    standard, reduced = without_values(name, "standard"), without_values(name, "reduced")
    assert {k: v.shape for k, v in standard.state_dict().items()} == {
        k: v.shape for k, v in reduced.state_dict().items()
    }
    strides = [
        {path for path, module in backbone.named_modules() if isinstance(module, nn.Conv2d) and module.stride == (2, 2)}
        for backbone in (standard, reduced)
    ]
    convolution = "conv1" if name == "resnet18" else "conv2"
    assert strides[0] - strides[1] == {
        f"net.{stage}.0.{part}" for stage in ("layer3", "layer4") for part in (convolution, "downsample.0")
    }
    assert not any(m.dilation != (1, 1) for m in reduced.modules() if isinstance(m, nn.Conv2d))


@pytest.mark.parametrize("side", ["13", "26"])
def test_finer_grids_of_convnext_change_no_weight_and_one_or_two_strides(side):
    standard, finer = without_values("convnext_tiny", "standard"), without_values("convnext_tiny", int(side))
    assert {k: v.shape for k, v in standard.state_dict().items()} == {k: v.shape for k, v in finer.state_dict().items()}
    strides = [
        {path: layer.stride for path, layer in backbone.named_modules() if isinstance(layer, nn.Conv2d)}
        for backbone in (standard, finer)
    ]
    changed = {path: stride for path, stride in strides[1].items() if stride != strides[0][path]}
    paths = {"13": ["net.features.6.1"], "26": ["net.features.4.1", "net.features.6.1"]}[side]
    assert changed == dict.fromkeys(paths, (1, 1))


def features_of(name: str, state: dict[str, torch.Tensor]) -> nn.Module:
    """Torchvision's network up to its features, made without its classifier; ResNets have no such part."""
    with torch.device("meta"):
        whole = models.get_model(name, weights=None)
    net = nn.Sequential(OrderedDict(list(whole.named_children())[:-2])) if name == "resnet18" else whole.features
    net.load_state_dict({key.removeprefix("features."): value for key, value in state.items()}, assign=True)
    return nn.Sequential(net, nn.ReLU()) if name == "densenet169" else net


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "vgg19", "densenet169", "convnext_tiny"])
def test_backbone_equals_torchvision_bit_for_bit(name):
    backbone = shared_backbone(name, "standard")
    state = {key.removeprefix("net."): value.clone() for key, value in backbone.state_dict().items()}
    reference = features_of(name, state).eval().to(memory_format=torch.channels_last)
    images = torch.rand(2, 3, 64, 96)
    inputs = normalize(images, IMAGENET["mean"], IMAGENET["std"]).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        assert torch.equal(backbone(images), reference(inputs))


@pytest.mark.parametrize(("name", "strides"), COMPUTED)
def test_backbone_can_be_traced_and_overwrites_nothing(name, strides):
    backbone = shared_backbone(name, strides)
    traced = torch.fx.symbolic_trace(backbone)
    images = torch.rand(1, 3, 75, 50)
    before = images.clone()
    with torch.inference_mode():
        features = backbone(images)
        assert torch.equal(traced(images), features)
    assert torch.equal(images, before)
    assert not any(getattr(module, "inplace", False) for module in backbone.modules())
    assert features.shape == (1, backbone.out_channels, *backbone.geometry((75, 50)).grid)
    assert features.dtype == torch.float32
    assert (features.min() >= 0) == (name != "convnext_tiny")  # every other backbone ends in a ReLU


def test_batch_rows_are_independent_and_one_row_is_enough_in_eval():
    backbone = shared_backbone("sketch", "standard")
    images = torch.rand(4, 3, 32, 40)
    with torch.inference_mode():
        together = backbone(images)
        assert torch.equal(backbone(images.flip(0)).flip(0), together)
        assert torch.allclose(backbone(images[:1]), together[:1], rtol=0, atol=tolerance(terms_of(backbone), together))
        assert backbone(images[:0]).shape == (0, 128, 4, 5)


@pytest.mark.parametrize(
    ("name", "key"),
    [("mobilenet_v2", "features.0.0"), ("bagnet9 narrow", "layer4.2.conv3")],
)
def test_random_initialisation_repeats_under_the_global_seed(name, key):
    states = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        options = {"name": "bagnet9", "width": 16} if "narrow" in name else {"name": name}
        states.append(build_backbone(options | {"weights": None}).state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert not torch.equal(states[0][f"net.{key}.weight"], states[2][f"net.{key}.weight"])


@pytest.mark.parametrize("name", ["vgg19", "bagnet33"])
def test_initialisation_keeps_the_size_of_gradients(name):
    """N(0, 2 / (k² · outputs)), within 10 % over 3·64·9 draws and more."""
    for layer in shared_backbone(name, "standard").modules():
        if isinstance(layer, nn.Conv2d):
            expected = (2 / (layer.kernel_size[0] ** 2 * layer.out_channels)) ** 0.5
            assert layer.weight.std().item() == pytest.approx(expected, rel=0.1)
            assert layer.bias is None or not layer.bias.any()


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "vgg19", "densenet169", "convnext_tiny"])
def test_state_dict_holds_torchvision_names_and_no_statistics(name):
    with torch.device("meta"):
        expected = models.get_model(name, weights=None).state_dict()
    kept = {key: value.shape for key, value in expected.items() if not key.startswith(("fc.", "classifier."))}
    own = without_values(name, "standard").state_dict()
    assert {key: value.shape for key, value in own.items()} == {f"net.{key}": shape for key, shape in kept.items()}


def test_normalisation_by_hand():
    images = torch.tensor([0.485, 0.685, 0.406]).view(1, 3, 1, 1)
    # (0.685 - 0.456) / 0.224 = 1.0223214
    assert Normalize("imagenet")(images).flatten().tolist() == pytest.approx([0, 1.0223214, 0], abs=1e-6)
    assert torch.equal(Normalize("none")(images), images)
    custom = Normalize({"mean": [0.5, 0.5, 0.5], "std": [2.0, 1.0, 0.5]})(images)
    assert custom.flatten().tolist() == pytest.approx([-0.0075, 0.185, -0.188], abs=1e-6)


def test_custom_normalisation_survives_a_reload_through_the_options():
    options: BackboneOptions = {"name": "sketch", "normalization": {"mean": [0.1, 0.2, 0.3], "std": [2.0, 2.0, 2.0]}}
    backbone = build_backbone(options).eval()
    again = build_backbone(options).eval()
    again.load_state_dict(backbone.state_dict(), strict=True)
    images = torch.rand(1, 3, 32, 32)
    assert torch.equal(again(images), backbone(images))
    plain = build_backbone({"name": "sketch"}).eval()
    plain.load_state_dict(backbone.state_dict(), strict=True)
    assert not torch.equal(plain(images), backbone(images))


@pytest.mark.parametrize(
    "normalization",
    [
        "clip",
        {"mean": [0.5, 0.5, 0.5]},
        {"mean": [0.5], "std": [1.0]},
        {"mean": [0.5] * 3, "std": [1.0, 0.0, 1.0]},
        {"mean": [0.5, 0.5, float("nan")], "std": [1.0] * 3},
        {"mean": [0.5] * 3, "std": [1.0] * 3, "scale": [1.0]},
    ],
)
def test_wrong_normalisation(normalization):
    with pytest.raises(ValueError, match="Expected argument `normalization` to be 'imagenet', 'none' or"):
        build_backbone({"name": "sketch", "normalization": normalization})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "resnet19"}, "`backbone.name` to be one of .*'resnet18'.*, but got 'resnet19'"),
        ({"weights": None}, "`backbone.name` to be one of .*, but got None"),
        ({"name": "sketch", "weight": None}, r"`backbone` to have keys of .*'weights'.*, but got \['name', 'weight'\]"),
        ({"name": "resnet18", "strides": "28"}, r"of resnet18 to be one of \('standard', 'reduced'\), but got '28'"),
        ({"name": "resnet18", "strides": 26}, r"of resnet18 to be one of .*, but got 26. .* 26 for 'convnext_tiny'"),
        ({"name": "convnext_tiny", "strides": "26"}, r"to be one of \('standard', 13, 26\), but got '26'"),
        ({"name": "convnext_tiny", "strides": "reduced"}, r"of convnext_tiny to be one of .*, but got 'reduced'"),
        ({"name": "mobilenet_v2", "strides": "reduced"}, r"of mobilenet_v2 to be one of \('standard',\), but got"),
        ({"name": "bagnet17", "strides": 13}, r"of bagnet17 to be one of \('standard',\), but got 13"),
        ({"name": "bagnet17", "width": 0}, "`backbone.width` to be a multiple of 16, .* but got 0 for bagnet17"),
        ({"name": "bagnet17", "width": 24}, "`backbone.width` to be a multiple of 16, .* but got 24 for bagnet17"),
        (
            {"name": "resnet18", "width": 16},
            "`backbone.width` to be .* for .*'bagnet9'.* only, but got 16 for",
        ),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        build_backbone(options)


class Holder:
    """Stands for a model."""

    def __init__(self, backbone: BackboneOptions | None = None):
        self.backbone = backbone


def parse(*arguments: str) -> dict[str, object]:
    """The backbone options that the command line of a trainer would give a model."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Holder, "model")
    flags = [argument.replace("--backbone", "--model.init_args.backbone") for argument in arguments]
    return parser.parse_args([f"--model={__name__}.Holder", *flags]).model.init_args.backbone


def test_options_are_plain_data_on_the_command_line():
    base = '--backbone={"name": "resnet18", "normalization": {"mean": [0, 0, 0], "std": [1, 1, 1]}}'
    options = parse(base, "--backbone.weights", "file.pth", "--backbone.strides=reduced")
    assert type(options) is dict
    assert options == {
        "name": "resnet18",
        "normalization": {"mean": [0.0] * 3, "std": [1.0] * 3},
        "weights": "file.pth",
        "strides": "reduced",
    }
    assert parse(base, "--backbone.normalization=none")["normalization"] == "none"
    assert parse('--backbone={"name": "sketch", "weights": null}') == {"name": "sketch", "weights": None}
    assert parse("--backbone.name=sketch", "--backbone.weights=file.pth") == {"name": "sketch", "weights": "file.pth"}
    for strides in (13, 26):
        expected = {"name": "convnext_tiny", "strides": strides}
        assert parse(f'--backbone={{"name": "convnext_tiny", "strides": {strides}}}') == expected
        assert parse("--backbone.name=convnext_tiny", f"--backbone.strides={strides}") == expected


def test_null_weights_on_the_command_line_mean_random_weights():
    options = parse('--backbone={"name": "sketch", "weights": "file.pth"}', "--backbone.weights=null")
    torch.manual_seed(0)
    typed = build_backbone(options).state_dict()
    torch.manual_seed(0)
    assert all(torch.equal(typed[k], v) for k, v in build_backbone({"name": "sketch"}).state_dict().items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (['--backbone={"name": "sketch", "weight": null}'], "Unexpected keys: {'weight'}"),
        (['--backbone={"name": "sketch"}', "--backbone.stride=reduced"], "Unexpected keys: {'stride'}"),
        (['--backbone={"name": "resnet18", "strides": "28"}'], "Got value: 28"),
    ],
)
def test_wrong_options_are_parse_errors_that_name_them(arguments, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        parse(*arguments)
