"""ST-ProtoPNet: what it does otherwise than TesNet; everything common is in ``test_contract.py``."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from protometry.lightning_modules.contract import empty_sources
from protometry.lightning_modules.st_protopnet import STProtoPNet, two_addons

SIZE = (32, 32)
SUPPORT = torch.arange(12) % 4 >= 2  # of 3 classes with 2 + 2 prototypes
close = torch.testing.assert_close


def make(**options) -> STProtoPNet:
    torch.manual_seed(0)
    small = {"num_classes": 3, "image_size": SIZE, "prototypes_per_class": 2, "prototype_channels": 8}
    return STProtoPNet(**(small | options)).eval()


def images(batch=2):
    return torch.rand(batch, 3, *SIZE, generator=torch.Generator().manual_seed(1))


# -- architecture ----------------------------------------------------------------------------------------------------
def test_the_addons_are_two_networks():
    """Each with its own weights, as large as those of an add-on alone."""
    torch.manual_seed(0)
    both, features = two_addons(32, 64, "tanh"), torch.rand(2, 32, 3, 3)
    halves = []
    for part in (slice(0, 64), slice(64, 128)):
        alone = nn.Sequential(nn.Conv2d(32, 64, 1), nn.Tanh(), nn.Conv2d(64, 64, 1), nn.Tanh())
        for index in (0, 2):
            alone[index].weight.data, alone[index].bias.data = both[index].weight[part], both[index].bias[part]
            assert alone[index].weight.std().item() == pytest.approx((2 / 64) ** 0.5, rel=0.05)
            assert not alone[index].bias.any()
        halves.append(alone(features))
    close(both(features), torch.cat(halves, dim=1))
    assert [type(layer) for layer in two_addons(32, 64, "linear")] == [nn.Conv2d]


def test_forward_follows_the_definition():
    """Every set as a model of its own, whose logits are added."""
    model, pictures = make(), images()
    with torch.no_grad():
        model.linear.weight.copy_(torch.randn(3, 12, generator=torch.Generator().manual_seed(2)))
        output = model(pictures)
        model.training = model.prototypes.training = True  # BatchNorm is not
        trained = model(pictures)
    logits = torch.zeros(2, 3, dtype=torch.float64)
    for members, half in ((~SUPPORT, output.latent[:, :8]), (SUPPORT, output.latent[:, 8:])):
        basis = F.normalize(model.prototypes.vectors.detach()[members].double(), dim=1)
        projections = torch.einsum("bdhw,ud->buhw", half.double(), basis)
        cosines = projections / half.double().square().sum(1, keepdim=True).sqrt()
        close(output.maps[:, members].double(), projections, rtol=1e-5, atol=1e-6)
        close(output.scores[:, members].double(), projections.amax((2, 3)), rtol=1e-5, atol=1e-6)
        close(trained.extras["distance"][:, members].double(), 1 - cosines.amax((2, 3)), rtol=1e-4, atol=1e-5)
        logits += projections.amax((2, 3)) @ model.linear.weight.detach()[:, members].double().T
    close(output.logits.double(), logits, rtol=1e-5, atol=1e-5)


def test_units_are_vectors_of_the_whole_latent():
    model = make()
    output, vectors = model(images()), model.units().vectors
    close(torch.einsum("bdhw,ud->buhw", output.latent, F.normalize(vectors, dim=1)), output.maps, rtol=1e-4, atol=1e-5)
    assert (vectors[:, 8:] != 0).any(1).tolist() == SUPPORT.tolist()
    assert (vectors[:, :8] != 0).any(1).tolist() == (~SUPPORT).tolist()


def test_a_patch_fills_the_half_of_its_set():
    model = make()
    latent = model.embed(images(1)).detach()
    patch = latent[0, :, 1, 2].expand(12, 16)
    model.load_patches(patch, torch.ones(12, dtype=torch.bool), empty_sources(12))
    assert model.distance_maps(latent)[0, :, 1, 2].max() < 1e-6
    assert torch.equal(model.prototypes.vectors[SUPPORT], patch[SUPPORT, 8:])
    chosen = torch.tensor([[11, 0, 2]])
    assert torch.equal(model.distance_maps(latent, chosen)[0], model.distance_maps(latent)[0, chosen[0]])


# -- losses ----------------------------------------------------------------------------------------------------------
def value(model, name, output):
    return model.loss_terms()[name](output, {"label": torch.tensor([0])}).item()


def test_terms_of_the_sets_by_hand():
    """One image of class 0; units of a class: 2 trivial, 2 support. Distances .01, .02, … by unit."""
    model = make()
    output = model(images(1))
    output.extras["distance"] = 0.01 * torch.arange(1.0, 13.0)[None].flip(1)  # .12 of unit 0, .01 of unit 11
    assert value(model, "cluster", output) == pytest.approx(0.11 + 0.09)  # units 1 and 3
    assert value(model, "separation", output) == pytest.approx(0.03)  # unit 9, trivial of class 2
    assert value(model, "support_separation", output) == pytest.approx(0.01)  # unit 11
    model.prune(torch.arange(12) < 8)
    assert value(model, "separation", output) == pytest.approx(0.07)  # unit 5
    assert value(model, "support_separation", output) == pytest.approx(0.05)  # unit 7


def test_each_set_has_its_own_cross_entropy():
    """Trivial logits (2, 0, 0), support logits (0, 2, 0): each set is judged alone, not the tie of their sum."""
    model = make(off_class_init=0.0)
    scores = torch.zeros(1, 12)
    scores[0, 0], scores[0, 6] = 2.0, 2.0
    expected = math.log(math.exp(2) + 2) - 2 + math.log(math.exp(2) + 2)
    assert value(model, "cross_entropy", model.decide(scores)) == pytest.approx(expected, rel=1e-6)


def test_support_prototypes_approach_and_trivial_ones_part():
    """Bases by hand: inner products between classes 0 and 1 are 1, 0, 0 and .6 in both sets; class 2 is class 0."""
    model = make()
    pairs = torch.tensor([[[1.0, 0, 0], [0, 1, 0]], [[1, 0, 0], [0, 0.6, 0.8]], [[1, 0, 0], [0, 1, 0]]])
    with torch.no_grad():
        model.prototypes.vectors.zero_()
        model.prototypes.vectors[~SUPPORT, :3] = pairs.flatten(0, 1)
        model.prototypes.vectors[SUPPORT, :3] = torch.tensor([-1.0, 1, 1]) * pairs.flatten(0, 1).roll(1, 1)
    rows = model.bases().detach()
    trivial, support = rows[:, :2], rows[:, 2:]
    for name, bases, sign, best in (("discrimination", trivial, 1, max), ("closeness", support, -1, min)):
        between = [best(float(a @ b) for a in bases[k] for b in bases[j]) for k in range(3) for j in range(3) if k != j]
        assert value(model, name, None) == pytest.approx(sign * sum(between) / 6, abs=1e-6), name
    deviation = sum((b @ b.T - torch.eye(2)).abs().sum().item() for b in (*trivial, *support))
    assert value(model, "orthonormality", None) == pytest.approx(deviation, abs=1e-5)


def test_original_schedule():
    warm, joint, last = make(preset="original").plan.phases
    assert (warm.epochs, joint.epochs, last.epochs) == (5, 16, 10)
    assert joint.losses == {
        "cross_entropy": 1, "cluster": 0.8, "separation": -0.08, "support_separation": -0.48, "orthonormality": 1e-3,
        "closeness": 1, "discrimination": 1,
    }  # fmt: skip
    assert joint.weight_decay == {"backbone": 5e-4, "addon": 5e-4}
    assert joint.scheduler.kwargs == {"milestones": [2, 4, 6, 8], "gamma": 0.2}  # epochs 7, 9, 11, 13 of all
    assert last.on_enter == ("project",)


def test_bad_input():
    with pytest.raises(ValueError, match=r"`addon` to be one of .*, but got 'sigmoid'"):
        make(addon="sigmoid")
