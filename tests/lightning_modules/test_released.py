"""Files of the authors' released code give the logits of their layers, or one error that says how to mend them."""

from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torchvision.transforms.functional import normalize

from protometry.callbacks import state_hash
from protometry.lightning_modules import BagNet, PIPNet, ProtoPNet, ProtoPool, ProtoTree, ProtoViT, load_released
from protometry.lightning_modules.heads.tree import LEFT, RIGHT, SOFT
from protometry.lightning_modules.released import FORMATS
from tests.lightning_modules import released_models as theirs
from tests.lightning_modules.released_models import SIZE, K

BLOCKS = [label for label in range(K) for _ in range(2)]
MIXED = [2, 0, 1, 2, 7]  # all others are pruned, and these out of order
SIZES = {
    ProtoPNet: {"prototypes_per_class": 2, "prototype_channels": 6},
    ProtoPool: {"num_prototypes": 20, "slots_per_class": 2, "prototype_channels": 6, "focal": "distance"},
    PIPNet: {"num_features": 9},
    ProtoTree: {"depth": 3, "prototype_channels": 6},
    ProtoViT: {"prototypes_per_class": 2, "parts": 3},
}
REDUCED = {"backbone": {"name": "resnet18", "strides": "reduced"}}
RELEASED = {
    "ProtoPNet": (ProtoPNet, partial(theirs.PPNet, BLOCKS), {}),
    "ProtoPNet pruned": (ProtoPNet, partial(theirs.PPNet, MIXED), {}),
    "ProtoPNet VGG": (ProtoPNet, partial(theirs.PPNet, BLOCKS, "vgg19"), {"backbone": {"name": "vgg19"}}),
    "ProtoPNet DenseNet": (
        ProtoPNet, partial(theirs.PPNet, BLOCKS, "densenet169"), {"backbone": {"name": "densenet169"}}
    ),
    "ProtoPool": (ProtoPool, theirs.PrototypeChooser, {}),
    "ProtoPool without last layer": (ProtoPool, partial(theirs.PrototypeChooser, last_layer=False), {}),
    "PIPNet": (PIPNet, partial(theirs.PIPNet, features=9), REDUCED),
    "PIPNet ConvNeXt": (
        PIPNet,
        partial(theirs.PIPNet, "convnext_tiny", threshold=0.002),
        {"backbone": {"name": "convnext_tiny", "strides": 13}, "num_features": None, "score_threshold": 0.002},
    ),
    "ProtoTree": (ProtoTree, theirs.ProtoTree, {}),
    "ProtoTree pruned": (ProtoTree, partial(theirs.ProtoTree, cut={3, 6, 7, 14}), {}),
    "ProtoTree of sums": (ProtoTree, partial(theirs.ProtoTree, kontschieder=True), {}),
    "ProtoViT": (ProtoViT, theirs.ProtoViT, {"backbone": {"name": "timm/test_vit", "normalization": "imagenet"}}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def ours(kind, **options):
    torch.manual_seed(1)
    given = {"num_classes": K, "image_size": SIZE, "backbone": {"name": "resnet18"}} | SIZES[kind] | options
    return kind(**given).eval()


def build(make):
    torch.manual_seed(0)
    return make().eval()


def converted(model, kind):
    """What the three lines of an error write where the authors' code can be imported."""
    lines = FORMATS[kind].lines(Path("model.pth"))
    torch.save(model, "model.pth")
    torch_of_then = SimpleNamespace(load=partial(torch.load, weights_only=False), save=torch.save)
    exec(lines, {"torch": torch_of_then})
    return torch.load("released.pth")


def save(content, **changes):
    """Its file, with changes."""
    content = content | {"model_state_dict": content["model_state_dict"] | changes.pop("state", {})} | changes
    torch.save({name: value for name, value in content.items() if value is not None}, "released.pth")
    return "released.pth"


def write(model, kind):
    return save(converted(model, kind))


def images():
    return torch.rand(2, 3, *SIZE, generator=torch.Generator().manual_seed(2))


def their_logits(model, pictures):
    seen = normalize(pictures.double(), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    with torch.no_grad():
        return model.double()(seen)


IN_SLOW = {"ProtoPNet VGG", "ProtoPNet DenseNet", "PIPNet ConvNeXt"}  # large, or like another
IN_SLOW |= {"ProtoPNet pruned", "ProtoPool without last layer", "ProtoTree pruned", "ProtoTree of sums"}


@pytest.mark.parametrize("name", [name for name in RELEASED if name not in IN_SLOW])
def test_logits_are_those_of_the_authors_layers(name):
    assert_same_logits(name)


def assert_same_logits(name):
    kind, make, options = RELEASED[name]
    authors, model = build(make), ours(kind, **options)
    load_released(model, write(authors, kind))
    with torch.no_grad():
        logits = model(images()).logits
    expected = their_logits(authors, images())
    assert expected.std(dim=0).max() > 1e-4  # images differ
    torch.testing.assert_close(logits.double(), expected, rtol=1e-5, atol=1e-5)


def test_pruned_prototypes_keep_their_class_and_leave_gaps():
    model = ours(ProtoPNet)
    load_released(model, write(build(partial(theirs.PPNet, MIXED)), ProtoPNet))
    units = model.units()
    assert units.active.nonzero().flatten().tolist() == [0, 2, 4, 5, 14]
    assert units.owner.int().argmax(dim=1)[units.active].tolist() == sorted(MIXED)
    assert (units.weight[:, ~units.active] == 0).all()


def test_prototypes_without_a_slot_are_inactive():
    model, authors = ours(ProtoPool), build(theirs.PrototypeChooser)
    load_released(model, write(authors, ProtoPool))
    assigned = set(authors.proto_presence.argmax(dim=1).flatten().tolist())
    assert set(model.units().active.nonzero().flatten().tolist()) == assigned != set(range(20))


def test_cut_branches_of_a_tree_are_inactive_and_route_past_the_cut():
    """Of the leaves 3, 4, 6, 7, 10, 11, 13, 14, four are cut: branch 5 with both of its own, and one of 2 and of 12."""
    model = ours(ProtoTree)
    load_released(model, write(build(RELEASED["ProtoTree pruned"][1]), ProtoTree))
    assert model.units().active.tolist() == [True, False, True, False, False, True, False]
    assert model.tree.route.tolist()[:4] == [SOFT, LEFT, SOFT, RIGHT]


def test_the_class_of_prototypes_is_that_of_their_block_if_the_weights_agree():
    """In a plain state dict, which does not say it."""
    model, authors = ours(ProtoPNet), build(partial(theirs.PPNet, BLOCKS))
    torch.save(authors.state_dict(), "state.pth")
    with pytest.warns(UserWarning, match="lacks `prototype_activation_function`"):
        load_released(model, "state.pth")
    assert torch.equal(model.linear.weight, authors.last_layer.weight)


def test_a_file_of_parallel_training_without_counters_in_half_precision():
    model, again, authors = ours(PIPNet, **REDUCED), ours(PIPNet, **REDUCED), build(RELEASED["PIPNet"][1]).half()
    state = {f"module.{name}": each for name, each in authors.state_dict().items() if "num_batches" not in name}
    torch.save({"model_state_dict": state, "optimizer_net_state_dict": {"state": {}}}, "net_trained")
    assert load_released(model, "net_trained")["file"] == "net_trained"
    load_released(again, write(authors, PIPNet))
    assert state_hash(model) == state_hash(again)
    assert model.exponent.item() == 2.5


@cache
def authors_of(name):
    return build(RELEASED[name][1])


@cache
def content_of(name):
    return converted(authors_of(name), RELEASED[name][0])


def error_of(kind, file, **options):
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        load_released(ours(kind, **options), file)
    return str(caught.value)


SKETCH = {"backbone": {"name": "sketch"}}


@pytest.mark.parametrize(("name", "changes", "options", "message"), [
    ("ProtoPNet", {}, {"backbone": {"name": "resnet34"}}, "missing (features.layer1.2.conv1.weight, "),
    ("ProtoPNet", {}, {"prototype_channels": 5}, "prototype_vectors: (16, 6, 1, 1) instead of (16, 5)"),
    ("ProtoPNet", {"state": {"extra": torch.ones(1)}}, {}, "1 unexpected (extra). Set `backbone.name`, "),
    ("ProtoPNet", {"state": {"last_layer.weight": torch.full((8, 16), torch.nan)}}, {}, "1 not finite (last_layer"),
    ("ProtoPNet", {}, {"num_classes": 9}, "last_layer.weight: (8, 16) instead of (9, 18)"),
    ("ProtoPNet", {"prototype_activation_function": "linear"}, SKETCH, "but it has 'linear', which our model does"),
    ("ProtoPNet", {"state": {"add_on_layers.4.weight": torch.ones(1)}}, SKETCH, "an add-on of the type `bottleneck`"),
    ("ProtoPNet", {}, SKETCH | {"off_class_init": None}, "`off_class_init` to be a number"),
    ("ProtoPNet", {}, SKETCH | {"epsilon": 1e-14}, "`epsilon` of ProtoPNet to be 0.0001, as in the released code"),
    ("ProtoPNet", {}, SKETCH | {"task": "multilabel"}, "`task` of ProtoPNet to be 'multiclass'"),
    ("ProtoPNet", {}, SKETCH | {"prototypes_per_class": 1}, "`prototypes_per_class` to be at least 2"),
    ("ProtoPNet pruned", {"prototype_class_identity": None}, SKETCH, "its 5 prototypes are not 16 that each weigh"),
    ("ProtoPNet pruned", {"prototype_class_identity": torch.ones(5, 8)}, SKETCH, "a row with a single 1 for each"),
    ("ProtoPool", {}, SKETCH | {"focal": "similarity"}, "`focal` of ProtoPool to be 'distance'"),
    ("ProtoPool", {}, {"num_prototypes": 21}, "proto_presence: (8, 20, 2) instead of (8, 21, 2"),
    ("PIPNet", {}, {}, "`backbone.strides` of PIPNet to be 'reduced' or 13 or 26, as in the released code of"),
    ("PIPNet", {"state": {"_classification.bias": torch.ones(8)}}, REDUCED, "`_classification.bias` is of a bias"),
    ("PIPNet", {}, REDUCED | {"num_features": None}, "2 unexpected (_add_on.0.weight, _add_on.0.bias)"),
    ("ProtoTree", {"out_map": None}, SKETCH, "but it lacks `out_map`. Without it no state dict of a ProtoTree is"),
    ("ProtoTree", {}, SKETCH | {"depth": 4}, "`depth` to be 3, as in released.pth, which has 7 prototypes, but got 4"),
    ("ProtoTree", {"nodes": {"_root.l.l.l": 99}}, SKETCH, "`nodes` and `out_map` in released.pth to"),
    ("ProtoTree", {"out_map": dict.fromkeys(range(7), 0)}, SKETCH, "`nodes` and `out_map` in released.pth to"),
])  # fmt: skip
def test_files_and_models_that_do_not_fit_are_refused(name, changes, options, message):
    kind, content = RELEASED[name][0], content_of(name)
    if "sketch" in str(options):  # refused before weights are compared
        few = {key: value for key, value in content["model_state_dict"].items() if value.numel() < 10_000}
        content = content | {"model_state_dict": few}
    assert message in error_of(kind, save(content, **changes), **options)


def test_pickled_modules_are_refused_with_the_lines_that_mend_them():
    """Those lines are run by ``converted``; pickles of the oldest kind are refused as well."""
    model = authors_of("ProtoTree")
    torch.save(model, "model.pth")
    torch.save(model, "old.pth", _use_new_zipfile_serialization=False)
    for file in ("model.pth", "old.pth"):
        said = error_of(ProtoTree, file, **SKETCH)
        assert "it is a pickled module, which would run code" in said
        assert said.endswith(FORMATS[ProtoTree].lines(Path(file)))
        assert 'torch.load("model.pth"' in said  # whatever file was named: the whole module lies next to it


def test_other_files_and_models_are_refused():
    assert "but missing.pth does not exist" in error_of(ProtoPNet, "missing.pth", **SKETCH)
    torch.save({"epoch": 3}, "epoch.pth")
    assert "got the keys ['epoch']" in error_of(ProtoPNet, "epoch.pth", **SKETCH)
    torch.save([1], "list.pth")
    assert "got a list" in error_of(ProtoPNet, "list.pth", **SKETCH)
    with pytest.raises(
        ValueError, match="to be one of ProtoPNet, ProtoPool, PIPNet, ProtoTree, ProtoViT, but got BagNet"
    ):
        load_released(BagNet(num_classes=2, image_size=(33, 33)), "epoch.pth")
