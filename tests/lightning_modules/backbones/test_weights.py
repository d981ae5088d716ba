from __future__ import annotations

import copy
import os
import pickle
import shutil
from collections import OrderedDict
from pathlib import Path
from urllib.error import URLError

import pytest
import torch
from torchvision import models
from torchvision.transforms.functional import normalize

from protometry.lightning_modules import Classifier, ProtoTree
from protometry.lightning_modules.backbones import build_backbone
from protometry.lightning_modules.backbones.weights import load_weights

ROOT = Path(__file__).parents[3]
BACKBONES = Path(os.environ.get("PROTOMETRY_DATA", ROOT.parent / "shared" / "data"), "backbones")
RESNET18_FILE = "resnet18-f37072fd.pth"


def moved(model):
    """Its state dict, with statistics that are not 0."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.1, 0.1)
    return model.state_dict()


@pytest.fixture(scope="module")
def resnet18_state():
    torch.manual_seed(7)
    return moved(models.resnet18(weights=None))


@pytest.fixture(scope="module")
def resnet18_file(resnet18_state, tmp_path_factory):
    """Only to be read."""
    file = tmp_path_factory.mktemp("files") / "resnet18.pth"
    torch.save(resnet18_state, file)
    return file


@pytest.fixture(scope="module")
def state():
    """Of a small network."""
    torch.manual_seed(7)
    return moved(build_backbone({"name": "sketch"}).net)


def built_from(content, path, name="sketch"):
    torch.save(content, path)
    return build_backbone({"name": name, "weights": str(path)})


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty torchvision cache and no network."""

    def refuse(*_args, **_kwargs):
        raise URLError("no route to host")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("torch.hub.urlopen", refuse)
    folder = tmp_path / "cache" / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    return folder


def assert_holds(backbone, state):
    """Every entry of the backbone equals the torchvision state dict's."""
    own = backbone.state_dict()
    assert len(own) == sum(not key.startswith(("fc.", "classifier.")) for key in state)
    for key, value in own.items():
        assert torch.equal(value, state[key.removeprefix("net.")].to(value.dtype)), key


def test_path_of_a_torchvision_state_dict(resnet18_file, resnet18_state):
    assert_holds(build_backbone({"name": "resnet18", "weights": str(resnet18_file)}), resnet18_state)
    reduced = build_backbone({"name": "resnet18", "weights": str(resnet18_file), "strides": "reduced"})
    assert_holds(reduced, resnet18_state)


def test_path_of_a_backbone_state_dict(tmp_path):
    torch.manual_seed(2)
    for name in ("sketch", "mobilenet_v2"):
        backbone = build_backbone({"name": name})
        torch.save(backbone.state_dict(), tmp_path / "backbone.pt")
        again = build_backbone({"name": name, "weights": str(tmp_path / "backbone.pt")})
        assert all(torch.equal(again.state_dict()[k], v) for k, v in backbone.state_dict().items())


def test_path_of_a_checkpoint(tmp_path):
    torch.manual_seed(3)
    trained = Classifier(num_classes=3, image_size=(32, 32))
    torch.save({"epoch": 4, "state_dict": trained.state_dict()}, tmp_path / "last.ckpt")
    backbone = ProtoTree(
        num_classes=3, image_size=(32, 32), depth=2, backbone={"name": "sketch", "weights": str(tmp_path / "last.ckpt")}
    ).backbone
    assert all(torch.equal(backbone.state_dict()[key], value) for key, value in trained.backbone.state_dict().items())


def test_checkpoint_of_another_backbone(tmp_path):
    torch.save({"state_dict": Classifier(num_classes=3, image_size=(32, 32)).state_dict()}, tmp_path / "last.ckpt")
    with pytest.raises(ValueError, match=r"(?s)of resnet18 .*last.ckpt: it lacks"):
        build_backbone({"name": "resnet18", "weights": str(tmp_path / "last.ckpt")})


def assert_classifier_is_left_out(name, ends, path):
    torch.manual_seed(2)
    backbone = build_backbone({"name": name})
    state = {key.removeprefix("net."): value for key, value in backbone.state_dict().items()}
    assert_holds(built_from(state | dict.fromkeys(ends, torch.ones(1)), path, name), state)


def test_path_of_a_state_dict_with_a_classifier(tmp_path):
    """Of a DenseNet below, of a ConvNeXt in ``tests/slow``."""
    assert_classifier_is_left_out("bagnet9", ["fc.weight", "fc.bias"], tmp_path / "whole.pth")


def test_densenet_files_with_the_old_names(tmp_path):
    """Torchvision's own file says ``denselayer1.norm.1.weight`` where its network says ``denselayer1.norm1.weight``."""
    torch.manual_seed(2)
    backbone = build_backbone({"name": "densenet169"})
    state = {key.removeprefix("net."): value for key, value in backbone.state_dict().items()}
    old = {}
    for key, value in state.items():
        *path, module, entry = key.split(".")
        in_layer = path[-1].startswith("denselayer")
        if entry != "num_batches_tracked":
            old[".".join([*path, f"{module[:-1]}.{module[-1]}" if in_layer else module, entry])] = value
    assert "features.denseblock4.denselayer32.norm.2.running_var" in old
    assert "features.transition1.norm.weight" in old
    old["classifier.weight"] = torch.ones(1)
    assert_holds(built_from(old, tmp_path / "old.pth", "densenet169"), state)


def test_bagnet_has_the_names_of_its_authors():
    expected = {f"{key}.weight" for key in ("conv1", "conv2", "bn1")} | {"bn1.bias"}
    for stage, blocks in enumerate((3, 4, 6, 3), start=1):
        for block in range(blocks):
            path = f"layer{stage}.{block}"
            expected |= {f"{path}.{kind}{index}.weight" for kind in ("conv", "bn") for index in (1, 2, 3)}
            expected |= {f"{path}.bn{index}.bias" for index in (1, 2, 3)}
        expected |= {f"layer{stage}.0.downsample.{entry}" for entry in ("0.weight", "1.weight", "1.bias")}
    assert {name for name, _ in build_backbone({"name": "bagnet33"}).net.named_parameters()} == expected


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_cast_up(dtype, state, tmp_path):
    half = {key: value.to(dtype) if value.is_floating_point() else value for key, value in state.items()}
    backbone = built_from(half, tmp_path / "half.pth")
    assert {value.dtype for value in backbone.parameters()} == {torch.float32}
    assert_holds(backbone, half)


def test_files_older_than_num_batches_tracked(state, tmp_path):
    old = copy.copy(state)  # keeps the version metadata, which would ask for the counters
    for key in [key for key in old if key.endswith("num_batches_tracked")]:
        del old[key]
    assert_holds(built_from(old, tmp_path / "old.pth"), state)


def test_missing_and_unexpected_keys_are_listed(resnet18_state, tmp_path):
    state = dict(resnet18_state)
    state["layer1.0.renamed.weight"] = state.pop("layer1.0.conv1.weight")
    del state["layer4.1.bn2.running_var"]
    with pytest.raises(ValueError, match=r"argument `weights` to be a state dict of .*resnet18") as caught:
        built_from(state, tmp_path / "renamed.pth", "resnet18")
    missing, unexpected = str(caught.value).split("it also has")
    assert "it lacks 2 keys" in missing
    assert "layer1.0.conv1.weight" in missing
    assert "layer4.1.bn2.running_var" in missing
    assert "layer1.0.renamed.weight" in unexpected
    assert "renamed.pth" in missing


def test_weights_of_another_network(resnet18_file, resnet18_state, tmp_path):
    with pytest.raises(ValueError, match=r"(?s)of resnet34 .*it lacks 96 keys, such as layer1\.2\.conv1\.weight"):
        build_backbone({"name": "resnet34", "weights": str(resnet18_file)})
    with pytest.raises(ValueError, match=r"(?s)resnet18.*size mismatch for conv1\.weight"):
        built_from(resnet18_state | {"conv1.weight": torch.zeros(3, 3, 7, 7)}, tmp_path / "other.pth", "resnet18")


class Exploit:
    """Writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (Path(self.path),)


def test_unreadable_files(resnet18_file, tmp_path):
    whole = resnet18_file.read_bytes()
    files = {
        "truncated.pth": whole[: len(whole) // 2],
        "empty.pth": b"",
        "page.pth": b"<html>404 not found</html>",
        "pointer.pth": b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n",
        "pointer.safetensors": b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n",
        "pickled.pth": pickle.dumps({"conv1.weight": Exploit(tmp_path / "written")}, protocol=2),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        cause = {"page": "is a web page", "pointer": "is a Git LFS", "pickled": "holds objects of"}
        said = f"{name}: .*{cause.get(Path(name).stem, '')}"
        with pytest.raises(
            ValueError, match=rf"`weights` to be a file that torch.load.* reads, but got .*{said}"
        ) as caught:
            build_backbone({"name": "sketch", "weights": str(tmp_path / name)})
        assert "weights_only` set to" not in str(caught.value)
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.module.", "_orig_mod.backbone.net."])
def test_prefixes_of_wrappers_are_left_out_and_said(prefix, state, tmp_path, caplog):
    of_a_run = "backbone" in prefix
    wrapped = {prefix + key: value for key, value in state.items()}
    with caplog.at_level("INFO"):
        assert_holds(built_from({"state_dict": wrapped} if of_a_run else wrapped, tmp_path / "wrapped.pth"), state)
    assert ("wrapped.pth begin with `module.`" in caplog.text) != of_a_run


def test_names_that_the_network_has_itself_stay(tmp_path):
    """A module called ``module`` is no wrapper."""
    net = torch.nn.Sequential(OrderedDict(module=torch.nn.Conv2d(3, 4, 2)))
    torch.save(net.state_dict(), tmp_path / "own.pth")
    load_weights(net, "own", str(tmp_path / "own.pth"), translate=dict)


def test_weights_that_are_no_numbers(state, tmp_path):
    broken = {"block1.1.bias": state["block1.1.bias"] * torch.nan, "block1.1.weight": state["block1.1.weight"] / 0}
    with pytest.raises(ValueError, match=r"finite numbers, .*NaN or infinity in 2 tensors, such as block1\.1\.weight"):
        built_from(state | broken, tmp_path / "broken.pth")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ({"epoch": 3, "state_dict": {}}, r"the keys \['epoch', 'state_dict'\]"),
        ([torch.zeros(1)], "a list"),
        ({}, r"the keys \[\]"),
    ],
)
def test_files_without_a_state_dict(content, found, tmp_path):
    with pytest.raises(ValueError, match=f"`weights` to hold a state dict, .* with {found}"):
        built_from(content, tmp_path / "other.pth")


@pytest.mark.parametrize(
    ("name", "weights", "choices"),
    [
        ("resnet18", "absent.pth", r"one of \['IMAGENET1K_V1'\] or "),
        ("resnet50", "IMAGENET1K_V3", r"one of \['IMAGENET1K_V1', 'IMAGENET1K_V2'\] or "),
        (
            "resnet50",
            "DEFAULT",
            r"one of \['IMAGENET1K_V1', 'IMAGENET1K_V2'\] or ",
        ),  # its meaning moves with torchvision
        ("sketch", "IMAGENET1K_V1", ""),
        ("bagnet33", "IMAGENET1K_V1", ""),
        ("mobilenet_v2", "", r"one of \['IMAGENET1K_V1', 'IMAGENET1K_V2'\] or "),
    ],
)
def test_neither_an_enum_name_nor_a_file(name, weights, choices, hub):
    said = rf"backbone '{name}' to be null or {choices}an existing file, but got '{weights}'"
    with pytest.raises(FileNotFoundError, match=said):
        build_backbone({"name": name, "weights": weights})


def test_enum_name_from_the_cache(hub, resnet18_file, resnet18_state):
    shutil.copy(resnet18_file, hub / RESNET18_FILE)
    assert_holds(build_backbone({"name": "resnet18", "weights": "IMAGENET1K_V1"}), resnet18_state)


@pytest.mark.parametrize(
    ("name", "weights", "file"),
    [
        ("resnet18", "IMAGENET1K_V1", RESNET18_FILE),
        ("mobilenet_v2", "IMAGENET1K_V2", "mobilenet_v2-7ebf99e0.pth"),
    ],
)
def test_enum_name_offline_is_one_error_with_file_folder_and_remedy(name, weights, file, hub):
    with pytest.raises(FileNotFoundError, match=r"Pass `--model.backbone.weights FILE`, or `null`") as caught:
        build_backbone({"name": name, "weights": weights})
    assert f"{file} is not in {hub}" in str(caught.value)
    assert "no route to host" in str(caught.value)


def test_enum_name_fetched_once(hub, resnet18_file, resnet18_state, monkeypatch):
    fetched = []

    def download(url, destination, hash_prefix, progress=True):
        fetched.append((url.rsplit("/", 1)[-1], hash_prefix))
        shutil.copy(resnet18_file, destination)

    monkeypatch.setattr("torch.hub.download_url_to_file", download)
    for _ in range(2):
        assert_holds(build_backbone({"name": "resnet18", "weights": "IMAGENET1K_V1"}), resnet18_state)
    assert fetched == [(RESNET18_FILE, "f37072fd")]


def test_download_with_a_wrong_hash_is_refused_and_not_kept(hub, tmp_path, monkeypatch):
    (tmp_path / "page").write_bytes(b"sign in to this network")

    class Response:
        def __init__(self):
            self.stream = (tmp_path / "page").open("rb")
            self.headers = {"Content-Length": "23"}

        def info(self):
            return self

        def get_all(self, _name):
            return ["23"]

        def __getattr__(self, name):
            return getattr(self.stream, name)

        def __enter__(self):
            return self

        def __exit__(self, *_args):
            self.stream.close()

    monkeypatch.setattr("torch.hub.urlopen", lambda *_args, **_kwargs: Response())
    with pytest.raises(FileNotFoundError, match=r"cannot be fetched \(.*invalid hash value"):
        build_backbone({"name": "resnet18", "weights": "IMAGENET1K_V1"})
    assert list(hub.iterdir()) == []


def test_damaged_cache_names_the_file(hub):
    (hub / RESNET18_FILE).write_bytes(b"cut")
    with pytest.raises(ValueError, match=f"torch.load.* reads, but got .*{RESNET18_FILE}"):
        build_backbone({"name": "resnet18", "weights": "IMAGENET1K_V1"})


@pytest.mark.parametrize(
    ("file", "classes"),
    [("mobilenet_v2_imagenet_coral_dequant.pt", 1000), ("mobilenet_v2_inat_birds_coral_dequant.pt", 965)],
)
def test_real_weights_equal_torchvision_bit_for_bit(file, classes):
    if not (BACKBONES / file).is_file():
        pytest.skip(f"{file} is not in {BACKBONES}; set PROTOMETRY_DATA to the data folder")
    backbone = build_backbone({"name": "mobilenet_v2", "weights": str(BACKBONES / file)}).eval()
    reference = models.mobilenet_v2(num_classes=classes)
    reference.load_state_dict(torch.load(BACKBONES / file, weights_only=True), strict=True)
    reference.eval().to(memory_format=torch.channels_last)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(3, 3, 5, 5, generator=generator)
    images = torch.nn.functional.interpolate(images, (160, 96), mode="bilinear")
    with torch.inference_mode():
        features = backbone(images)
        inputs = normalize(images, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
        inputs = inputs.contiguous(memory_format=torch.channels_last)
        assert torch.equal(features, reference.features(inputs))
    assert features.shape == (3, 1280, 5, 3)
    pooled = features.mean((2, 3))
    assert torch.cdist(pooled, pooled)[~torch.eye(3, dtype=torch.bool)].min() > 0.1 * pooled.norm(dim=1).min()
