"""A backbone has random weights within a ``with`` block, and its own afterwards."""

import pytest
import torch
from torch import nn

from protometry.callbacks.forward.untrained_backbone import UntrainedBackbone, backbone_stages
from tests.lightning_modules.registry import MODELS


def tensors(model):
    return {name: value.clone() for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}


def changed(one, other):
    return {name for name, value in one.items() if not torch.equal(value.nan_to_num(7), other[name].nan_to_num(7))}


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = MODELS["ProtoPNet"](num_classes=4, image_size=(32, 32)).eval()
    model.backbone.attention = nn.MultiheadAttention(4, 1)
    for tensor in (*model.backbone.parameters(), *model.backbone.buffers()):
        if tensor.is_floating_point():
            nn.init.uniform_(tensor, 0.5, 1)
    return model


def test_all_of_the_backbone_and_nothing_else_is_drawn_again(model):
    before = tensors(model)
    with torch.inference_mode(), UntrainedBackbone(model, seed=1):
        inside = tensors(model)
    assert changed(before, tensors(model)) == set()
    counts = {name for name in before if name.endswith("num_batches_tracked")}
    assert changed(before, inside) == {name for name in before if name.startswith("backbone.")} - counts
    for name, module in model.backbone.named_modules():
        state = {part: inside.get(f"backbone.{name}.{part}") for part in ("weight", "bias", "running_mean")}
        if isinstance(module, nn.Conv2d):
            weight = state["weight"]
            assert weight.std() == pytest.approx((2 / weight[0].numel()) ** 0.5, rel=4 * weight.numel() ** -0.5)
        elif isinstance(module, nn.BatchNorm2d):
            assert (state["weight"] == 1).all()
            assert not state["bias"].any()
            assert not state["running_mean"].any()
            assert (inside[f"backbone.{name}.running_var"] == 1).all()
    assert not inside["backbone.attention.in_proj_bias"].any()
    for seed, same in ((1, True), (2, False)):
        with UntrainedBackbone(model, seed):
            assert (changed(inside, tensors(model)) == set()) == same


def test_the_last_stages_and_what_follows_them_are_drawn_again(model):
    model.backbone.net.norm = nn.BatchNorm2d(128)
    nn.init.constant_(model.backbone.net.norm.weight, 0.5)
    before = tensors(model)
    assert backbone_stages(model) == 4
    for stages, drawn in ((1, "block4"), (3, "block2 block3 block4")):
        with UntrainedBackbone(model, seed=1, stages=stages):
            names = changed(before, tensors(model))
        assert {name.split(".")[2] for name in names} == {*drawn.split(), "norm"}
        assert changed(before, tensors(model)) == set()


def test_the_model_comes_back_from_an_error_and_with_shared_weights(model):
    convolutions = [module for module in model.backbone.modules() if isinstance(module, nn.Conv2d)]
    convolutions[0].weight, convolutions[0].extra = convolutions[1].weight, convolutions[1]
    before = tensors(model)
    untrained = UntrainedBackbone(model, seed=0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="lost"), untrained:
            raise RuntimeError("lost")
        assert changed(before, tensors(model)) == set()
