"""ProtoPNet: what only this model has; everything common is in ``test_contract.py``."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.phases.projection import project
from protometry.lightning_modules import ProtoPNet
from tests.lightning_modules.registry import MODELS, TINY_PROTOPNET, tiny_birds, tiny_trainer

SIZE = (32, 32)
close = torch.testing.assert_close


def make(**options) -> ProtoPNet:
    torch.manual_seed(0)
    return TINY_PROTOPNET(**({"num_classes": 3, "image_size": SIZE} | options)).eval()


def images(batch=2):
    return torch.rand(batch, 3, *SIZE, generator=torch.Generator().manual_seed(1))


def test_initial_weights():
    model = make(num_classes=4, prototypes_per_class=3)
    weight, owner = model.linear.weight, model.units().owner
    assert owner.shape == (12, 4)
    assert owner.int().argmax(1).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert (weight[owner.T] == 1).all()
    assert (weight[~owner.T] == -0.5).all()
    assert (make(off_class_init=0.0).linear.weight >= 0).all()
    assert model.linear.bias is None
    assert ((model.prototypes.vectors >= 0) & (model.prototypes.vectors < 1)).all()
    convolutions = [layer for layer in model.addon if isinstance(layer, nn.Conv2d)]
    assert [type(layer) for layer in model.addon] == [nn.Conv2d, nn.ReLU, nn.Conv2d, nn.Sigmoid]
    assert all((layer.bias == 0).all() for layer in convolutions)
    wide = make(prototype_channels=128).addon[0]
    assert wide.weight.std().item() == pytest.approx((2 / 128) ** 0.5, rel=0.05)  # Kaiming, fan-out 128, gain sqrt 2


def test_a_class_may_read_its_own_prototypes_only():
    model = make(off_class_init=None)
    own = model.units().owner.T
    optimizer = torch.optim.Adam(model.linear.parameters(), lr=0.1)
    terms, batch = model.loss_terms(), {"label": torch.tensor([0, 2])}
    for _ in range(3):
        output = model(images())
        optimizer.zero_grad()
        (terms["cross_entropy"](output, batch) + terms["off_class_l1"](output, batch)).backward()
        optimizer.step()
    assert (model.units().weight[~own] == 0).all()
    assert (model.units().weight[own] != 1).all()


def test_forward_follows_the_definition():
    model, pictures = make(), images()
    with torch.no_grad():
        output = model(pictures)
        latent = model.addon(model.backbone(pictures))
        model.training = model.prototypes.training = True  # BatchNorm is not
        trained = model(pictures)
    assert torch.equal(output.latent, latent)
    assert ((latent >= 0) & (latent <= 1)).all()
    scores = torch.zeros(2, 6, dtype=torch.float64)
    for image in range(2):
        for unit in range(6):
            vector = model.prototypes.vectors[unit].detach().double()
            cells = latent[image].double().flatten(1).T
            nearest = min(((cell - vector) ** 2).sum() for cell in cells)
            scores[image, unit] = torch.log((nearest + 1) / (nearest + 1e-4))
            assert trained.extras["distance"][image, unit].item() == pytest.approx(nearest.item(), rel=1e-4)
    close(output.scores.double(), scores, rtol=1e-5, atol=1e-5)
    close(output.logits.double(), scores @ model.linear.weight.detach().double().T, rtol=1e-5, atol=1e-5)


def test_prototypes_start_in_their_range():
    vectors = make().prototypes.vectors
    close(make(prototype_range=(0.4, 1.0)).prototypes.vectors, 0.4 + 0.6 * vectors)


def fake_output(model, distance):
    output = model(images())
    output.extras["distance"] = torch.tensor(distance)
    return output


DISTANCE = [[5.0, 3.0, 2.0, 9.0, 8.0, 7.0], [150.0, 160.0, 1.0, 4.0, 6.0, 200.0]]


PROTOTYPE_TERMS = ("cluster", "separation", "off_class_l1")


def test_loss_terms_by_hand():
    """Labels 0 and 2. Cluster: (min(5, 3) + min(6, 200)) / 2; separation: (2 + 1) / 2; L1: 3 classes x 4 x 0.5."""
    model, batch = make(), {"label": torch.tensor([0, 2])}
    output = fake_output(model, DISTANCE)
    values = {name: model.loss_terms()[name](output, batch).item() for name in PROTOTYPE_TERMS}
    assert values == {"cluster": 4.5, "separation": 1.5, "off_class_l1": 6.0}


def test_inactive_prototypes_are_left_out_of_the_losses():
    """Without prototypes 1, 2 and 4: cluster (5 + 200) / 2, separation (7 + 4) / 2, L1: 3 prototypes x 2 x 0.5."""
    model, batch = make(), {"label": torch.tensor([0, 2])}
    model.prune(torch.tensor([True, False, False, True, False, True]))
    output = fake_output(model, DISTANCE)
    values = {name: model.loss_terms()[name](output, batch).item() for name in PROTOTYPE_TERMS}
    assert values == {"cluster": 102.5, "separation": 5.5, "off_class_l1": 3.0}


def test_losses_of_a_metric_by_hand():
    """A prototype of the image itself does not count; margins of 8, 3 and 0, the fourth of an inactive prototype."""
    model = make(off_class_init=None)
    model.prototypes.sample_key[1] = 7
    output = model(images())
    output.scores.data = torch.tensor([[1.0, 5.0, 2.0, 0.0, 1.0, 1.0], [0.0, 4.0, 1.0, 1.0, 3.0, 0.0]])
    batch = {"label": torch.tensor([0, 2]), "sample_key": torch.tensor([7, 8])}
    logits = torch.tensor([[1.0, 2.0, 2.0], [4.0, 2.0, 3.0]])
    value = model.loss_terms()["cross_entropy_without_own"](output, batch)
    close(value, nn.functional.cross_entropy(logits, batch["label"]))
    distances = torch.full((2, 6, 4, 4), 9.0)
    distances[0, 0, 0, 0], distances[0, 1, 0, 0], distances[0, 1, 3, 3] = 1.0, 2.0, 5.0
    distances[1, 5, 2, 2] = 0.0
    output.extras["distances"] = distances
    model.prune(torch.tensor([True] * 5 + [False]))
    assert model.loss_terms()["margin"](output, batch).item() == pytest.approx((8 + 3 + 0) / 3)


def test_prototypes_stay_patches_while_their_metric_is_learnt():
    data, phases = tiny_birds(), {"metric": {"epochs": 2}}
    torch.manual_seed(0)
    model = MODELS["ProtoPNet metric"](num_classes=8, image_size=SIZE, preset="frozen", phases=phases)
    trainer = tiny_trainer()
    trainer.fit(model, data)
    units, source = model.eval().units(), model.prototypes.source()
    assert not torch.equal(model.prototypes.metric.weight[:, :, 0, 0], torch.eye(128))
    images = {
        int(sample["sample_key"]): sample["image"] for sample in (data.dataset("projection")[i] for i in range(24))
    }
    with torch.no_grad():
        for unit in units.active.nonzero()[:, 0].tolist():
            output = model(images[int(source.sample_key[unit])][None])
            assert output.maps[0, unit, source.row[unit], source.col[unit]].item() == pytest.approx(1, abs=1e-6)
    with evaluation_mode(model), torch.no_grad():
        before = units.vectors.clone()
        report = project(trainer, model)
    assert report["moved_max"] < 1e-6
    close(model.units().vectors, before, rtol=1e-4, atol=1e-5)


def test_loss_terms_with_several_labels_by_hand():
    """Image 0 shows 0 and 2, image 1 shows 2. Cluster: ((3 + 7) / 2 + 6) / 2; separation: ((2 + 2) / 2 + 1) / 2."""
    model = make(task="multilabel")
    batch = {"labels": torch.tensor([[True, False, True], [False, False, True]])}
    output = fake_output(model, DISTANCE)
    values = {name: model.loss_terms()[name](output, batch).item() for name in PROTOTYPE_TERMS}
    assert values == {"cluster": 5.5, "separation": 1.5, "off_class_l1": 6.0}


def test_loss_terms_of_the_published_code_for_several_labels():
    """Absent are class 1, at min(2, 9), and classes 0 and 1, at 150 and 1: (2 + 75.5) / 2. The margins are a sum."""
    model, labels = make(task="multilabel"), torch.tensor([[True, False, True], [False, False, True]])
    output, terms = fake_output(model, DISTANCE), model.loss_terms()
    assert terms["absent_separation"](output, {"labels": labels}).item() == 38.75
    padded = torch.tensor([[0, 2, -1], [2, -1, -1]])
    margin = torch.nn.functional.multilabel_margin_loss(output.logits, padded, reduction="sum")
    close(terms["multilabel_margin_sum"](output, {"labels": labels}), margin)
    assert "absent_separation" not in make().loss_terms()


def test_images_may_be_projected_onto_by_their_class_or_any_of_their_labels():
    model, several = make(), torch.tensor([[True, False, True], [False, False, False]])
    assert model.allowed(torch.tensor([1, 0])).int().tolist() == [[0, 0, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]]
    assert model.allowed(several).int().tolist() == [[1, 1, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0]]


def test_pruning_masks_and_never_reshapes():
    model, pictures = make(), images()
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items() if isinstance(tensor, torch.Tensor)}
    before = model(pictures)
    keep = torch.tensor([True, False, True, True, True, False])
    model.prune(keep)
    after = model(pictures)
    close(after.scores, before.scores * keep)
    close(after.logits, (before.scores * keep) @ model.linear.weight.T)
    assert torch.equal(after.maps, before.maps)
    assert (model.linear.weight[:, ~keep] == 0).all()
    assert {n: t.shape for n, t in model.state_dict().items() if isinstance(t, torch.Tensor)} == shapes
    model.prune(torch.tensor([False, True, True, True, True, True]))
    assert model.units().active.tolist() == [False, False, True, True, True, False]  # what is gone stays gone


def test_original_schedule():
    """Two cycles of the published schedule; all joint phases are one optimiser."""
    phases = ProtoPNet.presets["original"].phases
    assert [(p.name, p.epochs) for p in phases] == [
        ("warm", 5), ("joint", 6), ("last", 20), ("joint2", 10), ("last2", 20)
    ]  # fmt: skip
    warm, joint, last, joint2, _ = phases
    assert warm.trainable == {"addon": 3e-3, "prototypes": 3e-3}
    assert joint.trainable == {"backbone": 1e-4, "addon": 3e-3, "prototypes": 3e-3}
    assert joint.weight_decay == {"backbone": 1e-3, "addon": 1e-3}
    assert joint.optimizer == joint2.optimizer
    assert joint.optimizer.key is not None
    # StepLR(5, 0.1) stepped before each joint epoch
    assert joint.scheduler.kwargs == {"milestones": [4, 9, 14], "gamma": 0.1}
    assert joint.losses == {"cross_entropy": 1.0, "cluster": 0.8, "separation": -0.08}
    assert last.trainable == {"head": 1e-4}
    assert last.losses == {"cross_entropy": 1.0, "off_class_l1": 1e-4}


def test_funnybirds_schedule():
    """Opłatek et al. 2024, section 4: rates that fall every tenth epoch, prototypes projected at the 25th."""
    plan = ProtoPNet.presets["funnybirds"]
    first = next(i for i, phase in enumerate(plan.phases) if "project" in phase.on_enter)
    assert [plan.locate(epoch)[0] for epoch in (24, 25)] == [first - 1, first]
    assert plan.phases[1].scheduler.kwargs == {"step_size": 10, "gamma": 0.1}


@pytest.mark.parametrize("preset", ProtoPNet.presets)
def test_every_preset_projects_before_it_is_selected_and_freezes_batchnorm(preset):
    projected = False
    for phase in ProtoPNet.presets[preset].phases:
        projected |= bool({"project", "recurring_patches"} & {*phase.on_enter})
        assert phase.selectable == (projected and {*phase.trainable} == {"head"})
        if "backbone" not in phase.trainable:
            assert phase.bn == "eval"


@pytest.mark.parametrize(("options", "message"), [
    ({"prototypes_per_class": 0}, "`prototypes_per_class` to be at least 1, but got 0"),
    ({"prototype_channels": 0}, "`prototype_channels` to be at least 1, but got 0"),
    ({"epsilon": 0.0}, "`epsilon` to be above 0 and below 1, but got 0.0"),
    ({"epsilon": 2.0}, "`epsilon` to be above 0 and below 1, but got 2.0"),
    ({"similarity": "l2"}, r"`similarity` to be one of .*, but got 'l2'"),
    ({"prototype_range": (1.0, 0.4)}, "`prototype_range` to be two finite numbers, the lower first, but got 1.0, 0.4"),
    ({"addon": "relu"}, r"`addon` to be one of \('sigmoid', 'linear', 'metric'\), but got 'relu'"),
    ({"addon": "metric"}, "`prototype_channels` to be null with `addon: metric`, .* 128 channels .*, but got 8"),
    ({"preset": "frozen", "task": "multilabel"}, "`preset` to be another one than 'frozen' with `task: multilabel`"),
    ({"preset": "frozen"}, "`addon` to be 'metric' with `preset: frozen`, .*, but got 'sigmoid'"),
])  # fmt: skip
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=f"Expected argument {message}"):
        make(**options)
