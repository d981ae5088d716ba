"""Models come back from their checkpoints unchanged, except for requested changes."""

import pytest
import torch

from protometry.lightning_modules import BagNet, ProtoPNet, load_model
from protometry.lightning_modules.backbones import build_backbone
from tests.empty_checkpoint import EMPTY
from tests.lightning_modules.registry import MODELS

SIZE = (32, 32)


def saved(model, path, **changes):
    """A checkpoint as ``train.py`` writes it, with changed parts."""
    stored = {**model.hparams, "_class_path": f"protometry.lightning_modules.{type(model).__name__}"}
    parts = {"state_dict": model.state_dict(), "hyper_parameters": stored}
    torch.save(EMPTY | parts | changes, path)
    return path


@pytest.fixture
def images():
    return torch.rand(2, 3, *SIZE, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", MODELS)
def test_the_model_of_the_run(name, tmp_path, images):
    torch.manual_seed(0)
    model = MODELS[name](num_classes=4, image_size=SIZE).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))  # no weight is what a seed would draw
    loaded = load_model(saved(model, tmp_path / "x.ckpt"))
    assert type(loaded) is type(model)
    assert not any(module.training for module in loaded.modules())
    assert torch.equal(loaded(images).logits, model(images).logits)
    assert loaded.plan == model.plan


def test_no_weight_file_is_read(tmp_path):
    file = tmp_path / "backbone.pth"
    torch.save(build_backbone({"name": "sketch"}).net.state_dict(), file)
    model = ProtoPNet(num_classes=4, image_size=SIZE, backbone={"name": "sketch", "weights": str(file)})
    path = saved(model, tmp_path / "x.ckpt")
    file.unlink()
    assert load_model(path).hparams["backbone"] == {"name": "sketch", "weights": None}


def test_a_backbone_that_was_left_to_the_model(tmp_path):
    """BagNet chooses its own where none is given; the run then stores None."""
    model = BagNet(num_classes=2, image_size=(33, 33))
    assert model.hparams["backbone"] is None
    loaded = load_model(saved(model, tmp_path / "x.ckpt"))
    assert torch.equal(loaded.linear.weight, model.linear.weight)


def test_changes_replace_arguments(tmp_path, images):
    path = saved(MODELS["ProtoTree"](num_classes=4, image_size=SIZE), tmp_path / "x.ckpt")
    assert load_model(path).inference == "distributed"
    greedy = load_model(path, inference="greedy", prune_threshold=0.5)
    assert (greedy.inference, greedy.prune_threshold) == ("greedy", 0.5)
    assert torch.equal(greedy(images).logits, greedy.tree(greedy(images).scores, "greedy"))


def test_a_change_wins_over_what_the_checkpoint_stores(tmp_path, images):
    path = saved(MODELS["PIPNet"](num_classes=4, image_size=SIZE), tmp_path / "x.ckpt")
    assert (load_model(path)(images).scores > 0).all()  # nothing is learnt yet: 8 scores between 0.1 and 0.2
    assert (load_model(path, score_threshold=0.2)(images).scores == 0).all()


def test_arguments_that_the_model_does_not_have(tmp_path):
    path = saved(MODELS["ProtoPNet"](num_classes=4, image_size=SIZE), tmp_path / "x.ckpt")
    with pytest.raises(ValueError, match=r"Expected argument `inference` for a ProtoTree only, but .*x.ckpt .*ProtoPN"):
        load_model(path, inference="greedy")
    with pytest.raises(ValueError, match=r"arguments of ProtoPNet, .*'epsilon'.*'num_classes'.* but got 'depht'"):
        load_model(path, depht=3)


def test_a_misspelt_argument_of_a_model_is_named():
    message = r"arguments of ProtoPNet, but got 'prototype_per_class'. Did you mean 'prototypes_per_class'\?"
    with pytest.raises(TypeError, match=message):
        ProtoPNet(prototype_per_class=2)


def test_weights_of_another_model(tmp_path):
    model = ProtoPNet(num_classes=4, image_size=SIZE, prototypes_per_class=2)
    state = {name: value for name, value in model.state_dict().items() if name != "linear.weight"}
    path = saved(model, tmp_path / "x.ckpt", state_dict=state)
    with pytest.raises(ValueError, match=r"weights of ProtoPNet, but got others: .*linear.weight.*x.ckpt"):
        load_model(path)
    with pytest.raises(ValueError, match=r"size mismatch for prototypes\.vectors"):
        load_model(saved(model, path), prototypes_per_class=3)


def test_a_view_that_repeats_a_number_is_no_measure_of_what_is_stored(tmp_path):
    model = ProtoPNet(num_classes=4, image_size=SIZE, prototypes_per_class=2)
    state = {**model.state_dict(), "prototypes.vectors": torch.zeros(1).expand(10**12)}
    path = saved(model, tmp_path / "x.ckpt", state_dict=state)
    with pytest.raises(ValueError, match=r"tensors of \(400000000, \d+\), far more than the weights that are stored"):
        load_model(path, prototypes_per_class=10**8)
