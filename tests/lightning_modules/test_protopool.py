"""ProtoPool: what only this model has; everything common is in ``test_contract.py``."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from lightning import Callback
from torch import nn

import protometry.callbacks.phases.projection
import protometry.lightning_modules.protopool
from protometry.callbacks import Interpretability, RunCheckpoint, state_hash
from protometry.callbacks.phases.projection import project
from protometry.datamodules.views import Stratified
from protometry.lightning_modules.phases import Phase, PhasePlan
from protometry.lightning_modules.protopool import ProtoPool
from protometry.metrics.compactness.global_size import global_size
from tests.lightning_modules.registry import tiny_birds, tiny_trainer

SIZE = (32, 32)
SHORT = {name: {"epochs": epochs} for name, epochs in (("warm", 1), ("joint", 2), ("last", 1))}
close = torch.testing.assert_close


def make(**options) -> ProtoPool:
    torch.manual_seed(0)
    small = {"num_classes": 3, "image_size": SIZE, "num_prototypes": 5, "slots_per_class": 2, "prototype_channels": 8}
    return ProtoPool(**(small | options)).eval()


def images(batch=2):
    return torch.rand(batch, 3, *SIZE, generator=torch.Generator().manual_seed(1))


def plant(model: ProtoPool, slots: list[list[int]]) -> ProtoPool:
    """Put the slots of every class on the given prototypes."""
    with torch.no_grad():
        model.slots.logits.zero_()
        for label, prototypes in enumerate(slots):
            for slot, prototype in enumerate(prototypes):
                model.slots.logits[label, prototype, slot] = 1.0
    return model


SLOTS = [[0, 3], [3, 3], [4, 0]]  # prototypes 1 and 2 are on no slot; class 1 uses prototype 3 twice


# -- architecture ----------------------------------------------------------------------------------------------------
def test_initial_weights():
    model = make(num_classes=4, slots_per_class=3)
    own = torch.arange(12) // 3 == torch.arange(4)[:, None]
    assert torch.equal(model.linear.weight, own.float())
    assert (make(off_class_init=-0.5).linear.weight.min(), make().linear.weight.max()) == (-0.5, 1)
    assert model.linear.bias is None
    assert [type(layer) for layer in model.addon] == [nn.Conv2d, nn.Sigmoid]
    assert ((model.prototypes.vectors >= 0) & (model.prototypes.vectors < 1)).all()
    assert [type(layer) for layer in make(addon="linear").addon] == [nn.Conv2d]


@pytest.mark.parametrize("kind", ["similarity", "distance"])
def test_forward_follows_the_definition(kind):
    model, pictures = plant(make(focal=kind), SLOTS), images()
    with torch.no_grad():
        model.linear.weight.copy_(torch.randn(3, 6, generator=torch.Generator().manual_seed(2)))
        output = model(pictures)
        model.training = model.prototypes.training = True  # BatchNorm is not
        trained = model(pictures)
    for image in range(2):
        focal = []
        for unit in range(5):
            vector = model.prototypes.vectors[unit].detach().double()
            distances = [((cell - vector) ** 2).sum().item() for cell in output.latent[image].double().flatten(1).T]
            *similarities, at_mean = (
                math.log((d + 1) / (d + 1e-4)) for d in (*distances, sum(distances) / len(distances))
            )
            usual = sum(similarities) / len(similarities) if kind == "similarity" else at_mean
            focal.append(max(similarities) - usual)
            assert output.scores[image, unit].item() == pytest.approx(focal[-1], abs=1e-5)
            assert trained.extras["distance"][image, unit].item() == pytest.approx(min(distances), rel=1e-4)
        slots = torch.tensor([focal[unit] for chosen in SLOTS for unit in chosen])
        close(output.logits[image], model.linear.weight.detach() @ slots, rtol=1e-5, atol=1e-5)


def test_weights_are_summed_over_slots():
    """Slots of the classes: 0 3 | 3 3 | 4 0. Row 0: 1 + 32 on prototype 0, 2 + 4 + 8 on 3, 16 on 4."""
    model = plant(make(), SLOTS)
    with torch.no_grad():
        model.linear.weight.copy_(torch.tensor([1.0, 2, 4, 8, 16, 32]).repeat(3, 1))
    assert model.units().weight.tolist() == [[33, 0, 0, 14, 16]] * 3
    assert model.units().owner.T.int().tolist() == [[1, 0, 0, 1, 0], [0, 0, 0, 1, 0], [1, 0, 0, 0, 1]]


def test_decisions_and_ranks_follow_the_focal_score(monkeypatch):
    """Prototype 0 is near everywhere, prototype 1 less near, but in one cell only: 1 has the larger score."""
    model = make()
    distances = torch.full((1, 5, 2, 2), 100.0)
    distances[0, 0], distances[0, 1, 0, 1] = 0.01, 0.02
    monkeypatch.setattr(model.prototypes, "maps", lambda latent: model.prototypes.similarities(distances))
    output = model(images(1))
    assert output.maps.amax((2, 3)).argmax(1).item() == 0
    assert output.scores.argmax(1).item() == 1
    assert output.scores[0, 0].item() == pytest.approx(0, abs=1e-6)


# -- slots -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("options", "scales", "temperature"), [
    ({"preset": "original"}, [182.6, 258.2, 316.2, 365.1], 0.5),  # 1000 √(e / 30)
    ({"preset": "quanproto"}, [0.0, 1.0, 141.4, 200.0, 244.9], 1.0),  # none, at least 1, 1000 √(e / 50)
    ({"preset": "quanproto", "epoch_scale": 0.1}, [0.0, 1.0, 447.2, 632.5], 1.0),
    ({"preset": "original", "epoch_scale": 0.001}, [1000.0, 1000.0], 0.5),
    ({"preset": "original", "gumbel_epochs": 20, "temperature": 2.0}, [223.6, 316.2], 2.0),
])  # fmt: skip
def test_the_gumbel_schedule_belongs_to_the_preset(options, scales, temperature, monkeypatch):
    model = make(**options)
    for epoch, scale in enumerate(scales):
        monkeypatch.setattr(ProtoPool, "current_epoch", epoch)
        model.on_train_epoch_start()
        assert model.slots.scale.item() == pytest.approx(scale, abs=0.05)
    assert model.slots.temperature == temperature


def noisy(model: ProtoPool, step: int = 0) -> torch.Tensor:
    """The distribution of the slots in a training step."""
    model._trainer = SimpleNamespace(global_step=step)
    try:
        return model.train().assignment().detach()
    finally:
        model._trainer = None


def test_noise_follows_the_optimiser_step():
    model = make()
    assert torch.equal(noisy(model, 3), model.slots.assignment(3))
    assert not torch.equal(noisy(model, 3), noisy(model, 4))
    first = noisy(model)
    model.slots.noise_seed += 1  # as a checkpoint brings it
    model.enter_phase(0)
    assert not torch.equal(noisy(model), first)


# -- losses ----------------------------------------------------------------------------------------------------------
DISTANCE = [[5.0, 3.0, 2.0, 9.0, 8.0], [150.0, 160.0, 1.0, 140.0, 6.0]]


def terms(model, distance, labels):
    output = model(images())
    output.extras["distance"] = torch.tensor(distance)
    batch = {"label": torch.tensor(labels)}
    names = ("cluster", "separation", "slot_orthogonality", "off_class_l1")
    return {name: model.loss_terms()[name](output, batch).item() for name in names}


def test_loss_terms_by_hand():
    """Labels 0 (slots 0, 3) and 1 (3, 3). Cluster (5 + 140) / 2; separation (2 + 1) / 2, its own prototype 3 only.

    L1: 3 classes x 4 foreign slots x 0.5. Orthogonality: class 1 has one pair, both ways: 2 / (2 slots x 3 classes).
    """
    model = plant(make(off_class_init=-0.5), SLOTS)
    expected = {"cluster": 72.5, "separation": 1.5, "off_class_l1": 6.0, "slot_orthogonality": 1 / 3}
    assert terms(model, DISTANCE, [0, 1]) == pytest.approx(expected)


def test_separation_of_absent_labels_by_hand():
    """Absent are 0 (not 0, 3: min(3, 8, 2)) and 2 (not 4, 0: min(3, 8, 9)); then 1 (not 3) and 2, both at 1."""
    model = plant(make(task="multilabel"), SLOTS)
    output, labels = model(images()), torch.tensor([[False, True, False], [True, False, False]])
    output.extras["distance"] = torch.tensor([[5.0, 3.0, 8.0, 9.0, 2.0], DISTANCE[1]])
    assert model.loss_terms()["absent_separation"](output, {"labels": labels}).item() == (2.5 + 1.0) / 2


def test_inactive_prototypes_are_left_out_of_the_losses():
    """Prototypes 1 and 2 have no slot: separation (8 + 6) / 2."""
    model = plant(make(), SLOTS)
    model.harden_assignment(None)
    values = terms(model, DISTANCE, [0, 1])
    assert (values["cluster"], values["separation"]) == (72.5, 7.0)


@pytest.mark.parametrize("seed", range(3))
def test_own_prototypes_have_the_most_probability(seed):
    model = make(num_prototypes=9, slots_per_class=4)
    model.slots.noise_seed.fill_(seed)
    model.enter_phase(0)
    model.slots.scale.fill_(1.0)
    q = noisy(model)
    own = model.own()
    for label in range(3):
        mass = [q[label, unit].sum().item() for unit in range(9)]
        best = sorted(range(9), key=lambda unit: -mass[unit])[:4]
        assert own[label].nonzero().flatten().tolist() == sorted(best)


# -- hardening and projection ----------------------------------------------------------------------------------------
def test_hardening_keeps_assigned_prototypes_and_lists_the_others(monkeypatch):
    messages: list[str] = []
    monkeypatch.setattr(protometry.lightning_modules.protopool, "rank_zero_info", messages.append)
    model = plant(make(), SLOTS)
    vectors = model.prototypes.vectors.detach().clone()
    before = model(images())
    assert model.units().active.all()
    assert model.harden_assignment(None) == {"assigned": 3, "unassigned": 2, "repeated_slots": 1}
    assert model.units().active.tolist() == [True, False, False, True, True]
    assert messages[0].endswith("inactive: [1, 2]")
    assert messages[1].endswith("[class, prototype]: [[1, 3]]")
    after = model(images())
    assert (after.scores[:, 1:3] == 0).all()
    assert torch.equal(after.logits, before.logits)
    assert torch.equal(after.maps, before.maps)
    assert torch.equal(model.prototypes.vectors, vectors)
    assert (model.contributions(after, torch.tensor([0, 2]))[:, 1:3] == 0).all()


def test_nothing_to_tell_where_every_prototype_has_one_slot(monkeypatch):
    messages: list[str] = []
    monkeypatch.setattr(protometry.lightning_modules.protopool, "rank_zero_info", messages.append)
    report = plant(make(num_prototypes=6), [[0, 1], [2, 3], [4, 5]]).harden_assignment(None)
    assert report == {"assigned": 6, "unassigned": 0, "repeated_slots": 0}
    assert not messages


def test_global_size_counts_assigned_prototypes():
    """50 in the pool, 5 assigned; two slots of a class on one prototype count once."""
    model = plant(make(num_prototypes=50), [[7, 7], [11, 30], [42, 49]])
    model.harden_assignment(None)
    table = model.units()
    assert global_size(table.weight, table.active) == 5
    assert global_size(None, table.active, table.presence) == 5
    assert torch.equal(table.presence, table.owner.T)
    with torch.no_grad():
        model.linear.weight.zero_()  # assigned all the same
    assert global_size(model.units().weight, table.active, model.units().presence) == 5
    assert table.active.sum() == 5


def test_images_may_be_projected_onto_by_classes_with_a_slot():
    model = plant(make(), SLOTS)
    assert model.allowed(torch.tensor([2, 1])).int().tolist() == [[1, 0, 0, 0, 1], [0, 0, 0, 1, 0]]
    several = torch.tensor([[False, True, True], [False, False, False]])
    assert model.allowed(several).int().tolist() == [[1, 0, 0, 1, 1], [0, 0, 0, 0, 0]]


def test_projection_leaves_unassigned_prototypes_as_they_are():
    model = make(num_classes=8, num_prototypes=9)
    plant(model, [[label, (label + 1) % 8] for label in range(8)]).harden_assignment(None)
    vectors = model.prototypes.vectors.detach().clone()
    report = project(SimpleNamespace(datamodule=tiny_birds()), model)
    source = model.units().source
    assert report["without_patch"] == 0  # listed as unassigned, not as missing
    assert source.found.tolist() == [True] * 8 + [False]
    assert torch.equal(model.prototypes.vectors[8], vectors[8])
    assert (model.prototypes.vectors.abs().sum(1) > 0).all()
    assert all(label in (unit, (unit - 1) % 8) for unit, label in enumerate(source.label[:8].tolist()))


def test_prototypes_of_a_class_without_images_keep_their_vectors(monkeypatch):
    """Eight classes on a prototype each, four of them in the data: the others keep their vectors and are listed."""
    messages: list[str] = []
    monkeypatch.setattr(protometry.callbacks.phases.projection, "rank_zero_info", messages.append)
    birds = tiny_birds()
    whole = birds.dataset
    monkeypatch.setattr(birds, "dataset", lambda split: Stratified(whole(split), 4))
    model = make(num_classes=8, num_prototypes=9)
    plant(model, [[label, label] for label in range(8)]).harden_assignment(None)
    vectors = model.prototypes.vectors.detach().clone()
    report = project(SimpleNamespace(datamodule=birds), model)
    assert report["without_patch"] == 4
    shown = birds.dataset("projection").labels
    unseen = [label for label in range(8) if label not in shown]
    first = ", ".join(map(str, unseen[:-1]))
    assert (
        messages[0] == f"No training image may stand for prototypes {first} and {unseen[-1]}: they keep their vectors."
    )
    assert torch.equal(model.prototypes.vectors[unseen], vectors[unseen])
    assert model.units().active.tolist() == [True] * 8 + [False]
    assert model.units().source.found.tolist() == [label in shown for label in range(8)] + [False]


# -- training --------------------------------------------------------------------------------------------------------
class Scales(Callback):
    def __init__(self):
        self.seen = []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.seen.append((pl_module.phase.name, round(pl_module.slots.scale.item(), 3)))


def train(folder=None, ckpt_path=None, seed=0, callbacks=(), **options) -> ProtoPool:
    model = make(num_classes=8, preset="original", phases=SHORT, gumbel_epochs=3)
    torch.manual_seed(seed)
    if seed:  # another process: everything must come from the checkpoint
        model.slots.noise_seed.add_(seed)
    keep = [Interpretability(), RunCheckpoint()] if folder else []
    trainer = tiny_trainer(*keep, *callbacks, default_root_dir=folder, limit_val_batches=0, **options)
    trainer.fit(model, datamodule=tiny_birds(), ckpt_path=ckpt_path)
    return model


def test_the_schedule_runs_and_hardens_before_it_projects():
    scales = Scales()
    model = train(callbacks=[scales], limit_train_batches=1)
    assert scales.seen == [("warm", 577.35), ("joint", 816.497), ("joint", 1000.0), ("last", 1000.0)]
    table = model.units()
    assert torch.equal(table.active, table.owner.any(dim=1))
    assert not table.source.found[~table.active].any()
    assert table.source.found.any()


def test_a_resumed_run_ends_as_a_straight_one(tmp_path):
    straight = train()
    train(tmp_path, max_epochs=2)
    resumed = train(tmp_path, ckpt_path=tmp_path / "checkpoints" / "last.ckpt", seed=5)
    assert state_hash(resumed) == state_hash(straight)


# -- plans and bad input ---------------------------------------------------------------------------------------------
def test_published_schedules():
    warm, joint, last = ProtoPool.presets["original"].phases
    assert (warm.epochs, last.epochs) == (10, 25)
    assert warm.trainable == {"addon": 3e-3, "assignment": 3e-3, "prototypes": 3e-3}
    assert joint.trainable == warm.trainable | {"backbone": 1e-4}
    assert joint.weight_decay == {"backbone": 1e-3, "addon": 1e-3}
    assert joint.losses == {"cross_entropy": 1.0, "cluster": 0.8, "separation": -0.08, "slot_orthogonality": 1.0}
    assert last.losses == {"cross_entropy": 1.0, "off_class_l1": 1e-4}
    assert last.weight_decay == {"head": 1e-3}
    published = joint.losses
    warm, joint, last = ProtoPool.presets["quanproto"].phases
    assert (
        warm.losses
        == joint.losses
        == {
            {"slot_orthogonality": "adjacent_orthogonality"}.get(name, name): value for name, value in published.items()
        }
    )
    assert [phase.epochs for phase in (warm, joint, last)] == [25, 100, 10]
    assert joint.trainable == {"backbone": 7.9e-5, "addon": 1.3e-4, "assignment": 9e-4, "prototypes": 9e-4}
    assert last.trainable == {"head": 5e-4}


@pytest.mark.parametrize("preset", ProtoPool.presets)
def test_every_preset_hardens_then_projects_before_it_is_selected(preset):
    for phase in ProtoPool.presets[preset].phases:
        assert phase.selectable == (phase.on_enter[:2] == ("harden_assignment", "project"))
        assert phase.selectable == ("assignment" not in phase.trainable)
        if "backbone" not in phase.trainable:
            assert phase.bn == "eval" or preset == "sketch"


@pytest.mark.parametrize("when", ["on_enter", "on_exit"])
def test_a_plan_may_not_train_what_it_has_hardened(when, monkeypatch):
    trained = Phase("joint", 1, {"assignment": 1e-3}, {"cross_entropy": 1.0})
    hard = Phase("hard", 1, {"head": 1e-3}, {"cross_entropy": 1.0}, **{when: ("harden_assignment",)})
    monkeypatch.setattr(ProtoPool, "presets", {"sketch": PhasePlan((hard, trained))})
    with pytest.raises(ValueError, match=r"Expected `phases.joint.trainable` not to name 'assignment'"):
        make()
    monkeypatch.setattr(ProtoPool, "presets", {"sketch": PhasePlan((trained, hard))})
    make()


@pytest.mark.parametrize(("options", "message"), [
    ({"num_prototypes": 1}, "Expected argument `num_prototypes` to be at least `slots_per_class` = 2, but got 1"),
    ({"slots_per_class": 6}, "Expected argument `num_prototypes` to be at least `slots_per_class` = 6, but got 5"),
    ({"slots_per_class": 0}, "Expected argument `slots_per_class` to be at least 1, but got 0"),
    ({"prototype_channels": 0}, "Expected argument `prototype_channels` to be at least 1, but got 0"),
    ({"gumbel_epochs": 0}, "Expected argument `gumbel_epochs` to be at least 1, but got 0"),
    ({"epsilon": 0.0}, "Expected argument `epsilon` to be above 0 and below 1, but got 0.0"),
    ({"addon": "relu"}, "Expected argument `addon` to be one of .*, but got 'relu'"),
    ({"temperature": 0.0}, "Expected argument `temperature` to be above 0, but got 0.0"),
])  # fmt: skip
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)
