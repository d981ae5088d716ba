from __future__ import annotations

import copy
import re
from functools import cache

import pytest
import torch
from jsonargparse import ArgumentError, ArgumentParser
from torch import nn
from torchvision import models
from torchvision.transforms.functional import normalize

from lightning_modules.contract import Layer
from lightning_modules.trunks import Normalize, Trunk, TrunkOptions, build_trunk
from lightning_modules.trunks.trunk import longest_path

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
]
TRUNKS = [row[:2] for row in TABLE]


@cache
def shared_trunk(name: str, strides: str) -> Trunk:
    """Built once for the tests that only read it."""
    torch.manual_seed(0)
    return build_trunk({"name": name, "strides": strides}).eval()


@pytest.mark.parametrize(("name", "strides", "channels", "jump", "field", "start", "parameters", "grids"), TABLE)
def test_geometry_is_that_of_the_published_table(name, strides, channels, jump, field, start, parameters, grids):
    trunk = shared_trunk(name, strides)
    for side, cells in zip((224, 256), grids, strict=True):
        geometry = trunk.geometry((side, side))
        assert geometry.image == (side, side)
        assert geometry.grid == (cells, cells)
        assert (geometry.jump, geometry.receptive_field, geometry.start) == (jump, field, start)
    assert trunk.out_channels == channels
    assert sum(parameter.numel() for parameter in trunk.parameters()) == parameters


@pytest.mark.parametrize(("name", "strides"), TRUNKS)
@pytest.mark.parametrize("size", [(64, 96), (75, 50)])
def test_grid_is_that_of_a_forward(name, strides, size):
    trunk = shared_trunk(name, strides)
    with torch.inference_mode():
        features = trunk(torch.rand(1, 3, *size))
    assert features.shape == (1, trunk.out_channels, *trunk.geometry(size).grid)
    assert features.dtype == torch.float32
    assert features.min() >= 0  # every trunk ends in a ReLU


@pytest.mark.parametrize(("name", "strides"), TRUNKS)
def test_grid_is_that_of_a_shape_only_forward_at_large_sizes(name, strides):
    trunk = copy.deepcopy(shared_trunk(name, strides)).to("meta")
    for size in [(224, 224), (256, 256), (223, 321), (448, 224)]:
        assert tuple(trunk(torch.zeros(1, 3, *size, device="meta")).shape[2:]) == trunk.geometry(size).grid


def all_positive(trunk: Trunk) -> nn.Module:
    """The same wiring with averaging weights: no gradient is cut or cancelled, its support is the receptive field."""
    net = copy.deepcopy(trunk.net).double().eval()
    for parent in list(net.modules()):
        for key, module in list(parent.named_children()):
            if isinstance(module, nn.MaxPool2d):
                setattr(parent, key, nn.AvgPool2d(module.kernel_size, module.stride, module.padding))
            elif isinstance(module, nn.Conv2d):
                nn.init.constant_(module.weight, 1 / module.weight[0].numel())
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


@pytest.mark.parametrize(("name", "strides"), TRUNKS)
def test_receptive_field_is_the_support_of_the_gradient(name, strides):
    trunk = shared_trunk(name, strides)
    field, jump = trunk.geometry((2048, 64)).receptive_field, trunk.geometry((2048, 64)).jump
    geometry = trunk.geometry(((field // jump + 4) * jump, 8))  # a strip just long enough to hold a whole field
    rows = [0, geometry.grid[0] // 2, geometry.grid[0] - 1]
    boxes = supports(all_positive(trunk), geometry.image, rows)
    assert boxes == [geometry.cell_box(row, 0, "receptive_field") for row in rows]
    assert boxes[1][3] - boxes[1][1] + 1 == field  # the middle one is not clipped


def test_receptive_field_of_sketch_with_its_own_random_weights():
    torch.manual_seed(0)
    trunk = build_trunk({"name": "sketch"}).eval()
    images = torch.rand(32, 3, 72, 88, requires_grad=True)
    trunk(images)[:, :, 4, 5].sum().backward()
    touched = (images.grad != 0).any(dim=0).any(dim=0)
    # centre 4 + 8·4 = 36 and 4 + 8·5 = 44, field 38: pixels 17..54 and 25..62
    rows, columns = touched.any(1).nonzero().flatten(), touched.any(0).nonzero().flatten()
    assert (int(rows[0]), int(rows[-1]), int(columns[0]), int(columns[-1])) == (17, 54, 25, 62)


def test_longest_path_leaves_out_shortcuts():
    trunk = shared_trunk("resnet18", "standard")
    assert len(trunk.layers) == 18  # 17 convolutions (the shortcuts are the other three) and one max-pool
    assert trunk.layers[:2] == [Layer(7, 2, 3), Layer(3, 2, 1)]
    assert longest_path(nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(1, 1, 5))) == [Layer(2, 2, 0), Layer(5, 1, 0)]


def test_geometry_refuses_an_image_without_a_cell():
    with pytest.raises(ValueError, match="Expected argument `image_size` to leave at least one latent cell"):
        shared_trunk("sketch", "standard").geometry((7, 64))


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_reduced_strides_change_no_weight_and_four_strides(name):
    standard, reduced = shared_trunk(name, "standard"), shared_trunk(name, "reduced")
    assert {k: v.shape for k, v in standard.state_dict().items()} == {
        k: v.shape for k, v in reduced.state_dict().items()
    }
    strides = [
        {path for path, module in trunk.named_modules() if isinstance(module, nn.Conv2d) and module.stride == (2, 2)}
        for trunk in (standard, reduced)
    ]
    convolution = "conv1" if name == "resnet18" else "conv2"
    assert strides[0] - strides[1] == {
        f"net.{stage}.0.{part}" for stage in ("layer3", "layer4") for part in (convolution, "downsample.0")
    }
    assert not any(m.dilation != (1, 1) for m in reduced.modules() if isinstance(m, nn.Conv2d))


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_trunk_equals_torchvision_bit_for_bit(name):
    torch.manual_seed(1)
    trunk = build_trunk({"name": name}).eval()
    reference = models.get_model(name, weights=None)
    reference.load_state_dict(
        {k.removeprefix("net."): v for k, v in trunk.state_dict().items()}
        | {k: v for k, v in reference.state_dict().items() if k.startswith(("fc.", "classifier."))}
    )
    reference.eval().to(memory_format=torch.channels_last)
    if name == "resnet18":
        reference.avgpool = reference.fc = nn.Identity()
    images = torch.rand(2, 3, 64, 96)
    inputs = normalize(images, IMAGENET["mean"], IMAGENET["std"]).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        expected = reference(inputs) if name == "resnet18" else reference.features(inputs)
        assert torch.equal(trunk(images).flatten(1), expected.flatten(1))


@pytest.mark.parametrize(("name", "strides"), TRUNKS)
def test_trunk_can_be_traced_and_overwrites_nothing(name, strides):
    trunk = shared_trunk(name, strides)
    traced = torch.fx.symbolic_trace(trunk)
    images = torch.rand(1, 3, 32, 32)
    before = images.clone()
    with torch.inference_mode():
        assert torch.equal(traced(images), trunk(images))
    assert torch.equal(images, before)
    assert not any(getattr(module, "inplace", False) for module in trunk.modules())


def test_batch_rows_are_independent_and_one_row_is_enough_in_eval():
    trunk = shared_trunk("sketch", "standard")
    images = torch.rand(4, 3, 32, 40)
    with torch.inference_mode():
        together = trunk(images)
        assert torch.equal(trunk(images.flip(0)).flip(0), together)
        assert torch.allclose(trunk(images[:1]), together[:1], atol=1e-6)
        assert trunk(images[:0]).shape == (0, 128, 4, 5)


def test_random_initialisation_repeats_under_the_global_seed():
    states = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        states.append(build_trunk({"name": "mobilenet_v2", "weights": None}).state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert not torch.equal(states[0]["net.features.0.0.weight"], states[2]["net.features.0.0.weight"])


def test_state_dict_holds_torchvision_names_and_no_statistics():
    keys = shared_trunk("resnet18", "standard").state_dict().keys()
    expected = models.resnet18(weights=None).state_dict().keys() - {"fc.weight", "fc.bias"}
    assert keys == {f"net.{key}" for key in expected}


def test_normalisation_by_hand():
    images = torch.tensor([0.485, 0.685, 0.406]).view(1, 3, 1, 1)
    # (0.685 - 0.456) / 0.224 = 1.0223214
    assert Normalize("imagenet")(images).flatten().tolist() == pytest.approx([0, 1.0223214, 0], abs=1e-6)
    assert torch.equal(Normalize("none")(images), images)
    custom = Normalize({"mean": [0.5, 0.5, 0.5], "std": [2.0, 1.0, 0.5]})(images)
    assert custom.flatten().tolist() == pytest.approx([-0.0075, 0.185, -0.188], abs=1e-6)


def test_custom_normalisation_survives_a_reload_through_the_options():
    options: TrunkOptions = {"name": "sketch", "normalization": {"mean": [0.1, 0.2, 0.3], "std": [2.0, 2.0, 2.0]}}
    trunk = build_trunk(options).eval()
    again = build_trunk(options).eval()
    again.load_state_dict(trunk.state_dict(), strict=True)
    images = torch.rand(1, 3, 32, 32)
    assert torch.equal(again(images), trunk(images))
    plain = build_trunk({"name": "sketch"}).eval()
    plain.load_state_dict(trunk.state_dict(), strict=True)
    assert not torch.equal(plain(images), trunk(images))


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
        build_trunk({"name": "sketch", "normalization": normalization})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "resnet19"}, "`trunk.name` to be one of .*'resnet18'.*, but got 'resnet19'"),
        ({"weights": None}, "`trunk.name` to be one of .*, but got None"),
        ({"name": "sketch", "weight": None}, r"`trunk` to have keys of .*'weights'.*, but got \['name', 'weight'\]"),
        ({"name": "resnet18", "strides": "28"}, "`trunk.strides` to be one of .*'reduced'.*, but got '28'"),
        ({"name": "mobilenet_v2", "strides": "reduced"}, "to be 'standard' for mobilenet_v2, but got 'reduced'"),
        ({"name": "sketch", "strides": "reduced"}, "to be 'standard' for sketch, but got 'reduced'"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        build_trunk(options)


class Holder:
    """Stands for a model."""

    def __init__(self, trunk: TrunkOptions | None = None):
        self.trunk = trunk


def parse(*arguments: str) -> dict[str, object]:
    """The trunk options that the command line of a trainer would give a model."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Holder, "model")
    flags = [argument.replace("--trunk", "--model.init_args.trunk") for argument in arguments]
    return parser.parse_args([f"--model={__name__}.Holder", *flags]).model.init_args.trunk


def test_options_are_plain_data_on_the_command_line():
    base = '--trunk={"name": "resnet18", "normalization": {"mean": [0, 0, 0], "std": [1, 1, 1]}}'
    options = parse(base, "--trunk.weights", "file.pth", "--trunk.strides=reduced")
    assert type(options) is dict
    assert options == {
        "name": "resnet18",
        "normalization": {"mean": [0.0] * 3, "std": [1.0] * 3},
        "weights": "file.pth",
        "strides": "reduced",
    }
    assert parse(base, "--trunk.normalization=none")["normalization"] == "none"
    assert parse('--trunk={"name": "sketch", "weights": null}') == {"name": "sketch", "weights": None}
    assert parse("--trunk.name=sketch", "--trunk.weights=file.pth") == {"name": "sketch", "weights": "file.pth"}


def test_null_weights_on_the_command_line_mean_random_weights():
    options = parse('--trunk={"name": "sketch", "weights": "file.pth"}', "--trunk.weights=null")
    torch.manual_seed(0)
    typed = build_trunk(options).state_dict()
    torch.manual_seed(0)
    assert all(torch.equal(typed[k], v) for k, v in build_trunk({"name": "sketch"}).state_dict().items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (['--trunk={"name": "sketch", "weight": null}'], "Unexpected keys: {'weight'}"),
        (['--trunk={"name": "sketch"}', "--trunk.stride=reduced"], "Unexpected keys: {'stride'}"),
        (['--trunk={"name": "resnet19"}'], "Got value: resnet19"),
        (['--trunk={"name": "resnet18", "strides": "28"}'], "Got value: 28"),
        (['--trunk={"weights": null}'], "Missing required keys: {'name'}"),
    ],
)
def test_wrong_options_are_parse_errors_that_name_them(arguments, message):
    with pytest.raises(ArgumentError, match=re.escape(message)):
        parse(*arguments)
