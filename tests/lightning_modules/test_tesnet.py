"""TesNet: what only this model has; everything common is in ``test_contract.py``."""

from __future__ import annotations

import pytest
import torch
from lightning import Callback, seed_everything

from protometry.callbacks.phases.projection import nearest_patches
from protometry.lightning_modules.tesnet import BasisVectors, TesNet
from tests.lightning_modules.registry import tiny_birds, tiny_trainer

SIZE = (32, 32)
close = torch.testing.assert_close


def make(**options) -> TesNet:
    torch.manual_seed(0)
    small = {"num_classes": 3, "image_size": SIZE, "prototypes_per_class": 2, "prototype_channels": 8}
    return TesNet(**(small | options)).eval()


def images(batch=2):
    return torch.rand(batch, 3, *SIZE, generator=torch.Generator().manual_seed(1))


# -- architecture ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("addon", ["sigmoid", "linear"])
def test_forward_follows_the_definition(addon):
    """The vectors are scaled: only their directions count. A linear latent has negative projections."""
    model, pictures = make(addon=addon, off_class_init=-0.25), images()
    with torch.no_grad():
        model.prototypes.vectors.mul_(torch.arange(1.0, 7.0)[:, None])
        output = model(pictures)
        model.training = model.prototypes.training = True  # BatchNorm is not
        trained = model(pictures)
    for image in range(2):
        cells, scores = output.latent[image].double().flatten(1).T, []
        for unit, vector in enumerate(model.prototypes.vectors.double().detach()):
            basis = vector / vector.norm()
            projections, cosines = [cell @ basis for cell in cells], [cell @ basis / cell.norm() for cell in cells]
            scores.append(max(projections))
            close(output.maps[image, unit].flatten().double(), torch.stack(projections), rtol=1e-5, atol=1e-6)
            close(trained.scores[image, unit].double(), scores[-1], rtol=1e-4, atol=1e-5)
            close(trained.extras["distance"][image, unit].double(), 1 - max(cosines), rtol=1e-4, atol=1e-5)
        for label in range(3):
            logit = sum(score * (1 if unit // 2 == label else -0.25) for unit, score in enumerate(scores))
            close(output.logits[image, label].double(), logit, rtol=1e-5, atol=1e-5)


def test_a_large_cell_scores_and_a_well_directed_cell_is_the_patch():
    """Basis (0, 1): the cell (9, 3) projects to 3, (0, 2) to 2 only, but has no distance."""
    layer = BasisVectors(1, 2).eval()
    with torch.no_grad():
        layer.vectors.copy_(torch.tensor([[0.0, 5.0]]))
    latent = torch.tensor([[9.0, 0.0], [3.0, 2.0]])[None, :, None]
    assert layer.maps(latent).flatten().tolist() == pytest.approx([3, 2])
    assert layer.distances(latent).argmin() == 1
    assert layer.distances(latent).min() == 0


@pytest.mark.parametrize(("addon", "low"), [("sigmoid", 0.0), ("linear", -1.0)])
def test_prototypes_start_where_the_latent_may_be(addon, low):
    vectors = make(addon=addon).prototypes.vectors
    close(vectors.norm(dim=1), torch.ones(6))
    assert low <= vectors.min() < low + 1
    assert (vectors.min() < 0) == (low < 0)


# -- training --------------------------------------------------------------------------------------------------------
class Norms(Callback):
    """The lengths of the prototypes after every step."""

    def __init__(self):
        self.rows: list[tuple[str, torch.Tensor]] = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.rows.append((pl_module.phase.name, pl_module.prototypes.vectors.detach().norm(dim=1)))


def test_prototypes_return_to_the_sphere_until_they_are_patches():
    seed_everything(0, verbose=False)
    phases = {name: {"epochs": 1} for name in ("warm", "joint", "last")}
    model, data, norms = make(num_classes=8, preset="original", phases=phases), tiny_birds(), Norms()
    tiny_trainer(norms).fit(model, datamodule=data)
    assert {name for name, _ in norms.rows} == {"warm", "joint", "last"}
    for name, row in norms.rows:
        assert bool((row - 1).abs().max() < 1e-6) == (name != "last"), name
    nearest = nearest_patches(model.eval(), data.projection_dataloader(), model.device)
    assert nearest.distance.max() < 1e-6
    close(nearest.patch, model.prototypes.vectors.detach())


def test_losses_see_the_bases_without_pruned_vectors():
    """Class 0: (1, 0, …) and, pruned, its copy; class 1: (0, 1, …) and (.6, .8, …); both norms 2."""
    model = make(num_classes=2)
    with torch.no_grad():
        model.prototypes.vectors.zero_()
        model.prototypes.vectors[:, :2] = 2 * torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    assert model.loss_terms()["orthonormality"](None, {}).item() == pytest.approx(2 * 1 + 2 * 0.8)
    model.prune(torch.tensor([True, False, True, True]))
    assert model.bases()[0].tolist() == [[1.0, *[0.0] * 7], [0.0] * 8]
    assert model.loss_terms()["orthonormality"](None, {}).item() == pytest.approx(1 + 2 * 0.8)  # a constant for it


def test_original_schedule():
    warm, joint, last = make(preset="original").plan.phases
    terms = {"cross_entropy": 1, "cluster": 0.8, "separation": -0.08, "orthonormality": 1e-4}
    assert warm.losses == joint.losses == terms | {"subspace_separation": -1e-7}
    assert (warm.epochs, joint.epochs, last.epochs) == (5, 6, 20)
    assert warm.trainable == {"addon": 3e-3, "prototypes": 3e-3}
    assert joint.trainable == warm.trainable | {"backbone": 1e-4}
    assert joint.weight_decay == {"backbone": 1e-3, "addon": 1e-3}
    assert (last.trainable, last.on_enter, last.selectable) == ({"head": 1e-4}, ("project",), True)


def test_bad_input():
    with pytest.raises(ValueError, match="`prototypes_per_class` to be at least 1"):
        make(prototypes_per_class=0)
