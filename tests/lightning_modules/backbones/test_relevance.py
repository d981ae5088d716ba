"""Whether relevance propagation passes a backbone: what its layers are decides, so it is tested with them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from protometry.explanations.explainer import Targets
from protometry.explanations.relevance.prp_and_lrp import LRP, PRP
from protometry.lightning_modules import ProtoPNet
from tests.explanations.backbones import moved_statistics


def protopnet(name: str) -> ProtoPNet:
    """A ProtoPNet whose BatchNorms and biases are not the identity."""
    torch.manual_seed(0)
    model = ProtoPNet(num_classes=3, image_size=(64, 64), backbone={"name": name}, prototypes_per_class=2)
    for layer in model.backbone.modules():
        if isinstance(layer, nn.Conv2d) and layer.bias is not None:
            nn.init.normal_(layer.bias, std=0.1)
    moved_statistics(model)
    return model


@pytest.mark.parametrize("name", ["vgg19", "densenet169"])
def test_relevance_is_conserved(name):
    model, images = protopnet(name), torch.rand(2, 3, 64, 64)
    explainer = PRP()
    assert explainer.supports(model) is None
    maps = explainer.attribute(model, images, Targets("unit", torch.tensor([[0, 3], [5, 1]])))
    torch.testing.assert_close(maps.sum((2, 3)), torch.ones(2, 2), rtol=0, atol=1e-4)
    assert explainer.bypass == {}  # no window lives on its bias
    contributions = model.contributions(model(images), torch.tensor([2, 0])).detach()
    got = LRP().attribute(model, images, Targets("class", torch.tensor([[2], [0]]))).sum((1, 2, 3))
    assert ((got - contributions.sum(1)).abs() < 1e-4 * contributions.abs().sum(1)).all()


def test_what_relevance_cannot_pass_is_named():
    model = protopnet("convnext_tiny")
    place = r"'backbone.net.features.0.1' \(LayerNorm2d, operation 'permute'\)"
    for explainer in (PRP(), LRP()):
        targets = Targets("unit" if explainer.key == "prp" else "class", torch.tensor([[0]]))
        with pytest.raises(ValueError, match=f"relevance cannot pass {place}"):
            explainer.attribute(model, torch.rand(1, 3, 64, 64), targets)
