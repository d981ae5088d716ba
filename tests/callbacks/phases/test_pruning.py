"""Pruning: which prototypes go, exactly, over any batches and processes; and that the head trains afterwards."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from lightning import Callback

import protometry.callbacks.phases.pruning
from protometry.callbacks.phases import action_words
from protometry.callbacks.phases.projection import NearestPatches, project
from protometry.callbacks.phases.pruning import keep_one_per_class, prune, prune_units, votes
from protometry.lightning_modules import PIPNet
from tests.lightning_modules.registry import PRUNE, SHORT, TINY_PROTOPNET, tiny_birds, tiny_trainer

CPU = torch.device("cpu")


def listed(own, distance):
    """The nearest images, so many of them own, with this distance to the nearest."""
    nearest = NearestPatches.empty(6, len(own), 1, CPU)
    nearest.own = torch.arange(6)[:, None] < torch.tensor(own)
    nearest.distance = torch.tensor(distance) + torch.arange(6.0)[:, None]
    return nearest


def test_votes_are_of_images_that_are_there():
    assert votes(listed([3, 6, 2], [0.0, 1.0, math.inf])).tolist() == [3, 6, 0]
    assert votes(NearestPatches.empty(6, 3, 1, CPU)).tolist() == [0, 0, 0]


# -- no class without prototype --------------------------------------------------------------------------------------
@pytest.mark.parametrize(("own", "distance", "best"), [
    ([1, 2, 0], [0.0, 5.0, 0.0], 1),  # most own images, however far
    ([2, 2, 2], [0.5, 0.1, 0.3], 1),  # then the nearest
    ([1, 1, 1], [0.0, 0.0, 0.0], 0),  # then the first
    ([0, 0, 0], [math.inf] * 3, 0),  # a class without images
])  # fmt: skip
def test_the_best_prototype_of_a_lost_class_stays(own, distance, best):
    owner = torch.tensor([[True, False]] * 3 + [[False, True]])
    keep = torch.tensor([False, False, False, True])
    kept, rescued = keep_one_per_class(keep, owner, listed([*own, 6], [*distance, 0.0]))
    assert kept.tolist() == [unit in (best, 3) for unit in range(4)]
    assert rescued == [0]
    assert not keep[:3].any()  # the argument is left alone


def test_nothing_is_rescued_where_something_is_left_nor_what_is_inactive():
    """``owner`` excludes inactive units, so a class with one active prototype keeps that one."""
    owner = torch.eye(3, dtype=torch.bool).repeat(2, 1)
    owner[:, 2] = False  # class 2 has no prototype at all
    keep = torch.tensor([True, False, False, False, True, False])
    kept, rescued = keep_one_per_class(keep, owner, listed([0] * 6, [1.0] * 6))
    assert (kept.tolist(), rescued) == (keep.tolist(), [])
    kept, rescued = keep_one_per_class(keep[2:4], torch.tensor([[False], [True]]), listed([2, 0], [0.0, 9.0]))
    assert (kept.tolist(), rescued) == ([False, True], [0])


# -- the action ------------------------------------------------------------------------------------------------------
def projected():
    torch.manual_seed(0)
    model = TINY_PROTOPNET(num_classes=8, image_size=(32, 32), prototypes_per_class=3)
    trainer = SimpleNamespace(datamodule=tiny_birds(train_size=48, eval_batch_size=7))
    project(trainer, model)
    return model, trainer


def slow_votes(model, birds):
    """Own images among the six nearest of every prototype, one image and one prototype at a time."""
    dataset, rows = birds.dataset("projection"), []
    model.eval()
    for sample in (dataset[i] for i in range(len(dataset))):
        with torch.no_grad():
            cells = model.addon(model.backbone(sample["image"][None]))[0].double().flatten(1).T
        distances = [((cells - v.double()) ** 2).sum(1).min().item() for v in model.prototypes.vectors.detach()]
        rows.append((distances, int(sample["label"])))
    votes = []
    for unit in range(24):
        nearest = sorted((distances[unit], label) for distances, label in rows)[:6]
        votes.append(sum(label == unit // 3 for _, label in nearest))
    return torch.tensor(votes)


def test_prune_equals_the_slow_definition():
    model, trainer = projected()
    found = slow_votes(model, trainer.datamodule)
    assert 0 < (found >= 3).sum() < 24  # the rule has something to do
    modes = {name: part.training for name, part in model.train().named_modules()}
    report = prune(trainer, model)
    assert {name: part.training for name, part in model.named_modules()} == modes
    active = model.units().active.clone()
    for label in range(8):
        mine = slice(3 * label, 3 * label + 3)
        if (found[mine] >= 3).any():
            assert torch.equal(active[mine], found[mine] >= 3)
        else:
            assert active[mine].sum() == 1
            assert found[mine][active[mine]] == found[mine].max()
    lost = (found.view(8, 3) < 3).all(1).sum().item()
    assert report == {"kept": active.sum().item(), "pruned": 24 - active.sum().item(), "rescued": lost}
    assert prune(trainer, model)["pruned"] == 0.0  # what is pruned stays pruned
    assert torch.equal(model.units().active, active)


def test_rescued_classes_are_listed(monkeypatch):
    texts = []
    monkeypatch.setattr(protometry.callbacks.phases.pruning, "rank_zero_info", texts.append)
    monkeypatch.setattr(protometry.callbacks.phases.pruning, "NEEDED", 7)  # nobody can have seven of six
    model, trainer = projected()
    report = prune(trainer, model)
    assert report == {"kept": 8.0, "pruned": 16.0, "rescued": 8.0}
    assert model.units().owner.sum(0).tolist() == [1] * 8
    assert any("Classes 0, 1, 2, 3, 4, 5, 6 and 7 would" in text for text in texts)
    assert f"Pruned units: {action_words.listed((~model.units().active).nonzero().flatten().tolist())}." in texts


def test_a_model_that_was_not_projected_is_refused():
    trainer = SimpleNamespace(datamodule=tiny_birds())
    with pytest.raises(ValueError, match="Expected a projected model for the action 'prune'"):
        prune(trainer, TINY_PROTOPNET(num_classes=8, image_size=(32, 32)))


class Heads(Callback):
    """The head before every step, by phase, and the weights the optimiser holds."""

    def __init__(self):
        self.seen, self.held = {}, []

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        self.seen.setdefault(pl_module.phase.name, pl_module.linear.weight.detach().clone())
        held = [p for group in trainer.optimizers[0].param_groups for p in group["params"]]
        self.held.append(any(p is pl_module.linear.weight for p in held))


def test_the_head_trains_after_pruning_and_dead_columns_stay_zero():
    """A stale optimiser would move nothing."""
    torch.manual_seed(0)
    model = TINY_PROTOPNET(num_classes=8, image_size=(32, 32), preset="original", phases=SHORT | {"prune": PRUNE})
    heads = Heads()
    tiny_trainer(heads).fit(model, datamodule=tiny_birds())
    active, weight = model.units().active, model.linear.weight.detach()
    assert 0 < active.sum() < len(active)
    before = heads.seen["prune"]
    assert heads.held[-1]
    assert (before[:, ~active] == 0).all()
    assert (weight[:, ~active] == 0).all()
    assert (weight[:, active] != before[:, active]).any(0).all()


# -- units by number -------------------------------------------------------------------------------------------------
def pruned_by_number(model, units):
    model.plan = model.plan.override({"warm": {"prune": units}})
    return prune_units(SimpleNamespace(current_epoch=0), model)


def test_units_by_number():
    model = TINY_PROTOPNET(num_classes=8, image_size=(32, 32))
    assert pruned_by_number(model, [1, 3]) == {"pruned": 2.0, "kept": 14.0}
    assert pruned_by_number(model, [3, 4]) == {"pruned": 1.0, "kept": 13.0}  # 3 is gone already
    assert (~model.units().active).nonzero().flatten().tolist() == [1, 3, 4]
    assert not model.linear.weight[:, [1, 3, 4]].any()
    pipnet = PIPNet(num_features=4, num_classes=8, image_size=(32, 32))
    pipnet.plan = pipnet.plan.override({"train": {"prune": [2]}})
    assert prune_units(SimpleNamespace(current_epoch=0), pipnet) == {"pruned": 1.0, "kept": 3.0}
    assert pipnet.units().active.tolist() == [True, True, False, True]


@pytest.mark.parametrize(("units", "message"), [
    ([16], r"`phases.warm.prune` to name some of the units 0 to 15, but got \[16\]"),
    (list(range(16)), "leave some of the 16 active units"),
])  # fmt: skip
def test_units_that_cannot_be_pruned(units, message):
    with pytest.raises(ValueError, match=message):
        pruned_by_number(TINY_PROTOPNET(num_classes=8, image_size=(32, 32)), units)
