"""Relevance propagation on a whole network against another implementation."""

from __future__ import annotations

import torch

from tests.explanations.backbones import protopnet, taped
from tests.explanations.relevance.test_relevance import IMAGES
from tests.explanations.small_models import rand


def test_zennit_agrees_on_a_resnet():
    """The same rules in another implementation, on torchvision's ResNet-18."""
    from zennit import composites, rules, torchvision, types

    torch.manual_seed(0)
    backbone = protopnet("resnet18").backbone
    latent, tape = taped(backbone, IMAGES)
    start = rand(*latent.shape) * latent
    expected = tape.backward(start.clone())[0]

    pixels = backbone.normalize(IMAGES).requires_grad_()
    low, high = (backbone.normalize(torch.full_like(IMAGES, value)) for value in (0.0, 1.0))
    stabilizer = {"stabilizer": 1e-12, "zero_params": ["bias"]}
    layers = [
        (types.Activation, rules.Pass()),
        (types.BatchNorm, rules.Pass()),
        (torchvision.Sum, rules.Norm(1e-6)),
        (types.Convolution, rules.AlphaBeta(1.0, 0.0, **stabilizer)),
    ]
    first = [(types.Convolution, rules.ZBox(low, high, **stabilizer))]
    composite = composites.SpecialFirstLayerMapComposite(layers, first, canonizers=[torchvision.ResNetCanonizer()])
    with composite.context(backbone.net) as network:
        got = torch.autograd.grad(network(pixels), pixels, start)[0].sum(1)
    difference = (got - expected).abs().max() / expected.abs().max()
    print(f"largest difference: {difference:.1e} of the maximum")
    assert difference < 1e-4
