"""Pruning: which prototypes go, exactly, over any batches and processes; and that the head trains afterwards."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from lightning import Callback

import protometry.callbacks.phases.pruning
from protometry.callbacks.phases.projection import NearestPatches, PatchDistances, project
from protometry.callbacks.phases.pruning import keep_one_per_class, prune, votes
from protometry.lightning_modules import Classifier
from tests.lightning_modules.registry import PRUNE, SHORT, TINY_PROTOPNET, tiny_birds, tiny_trainer

CPU = torch.device("cpu")


def draw(count=19, units=7, seed=0, levels=4):
    """Whole-number distances, so that ties are many; the last four images repeat the first under keys of their own."""
    generator = torch.Generator().manual_seed(seed)
    distance = torch.randint(0, levels, (count, units), generator=generator).float()
    own = torch.rand(count, units, generator=generator) < 0.5
    distance[-4:], own[-4:] = distance[:4], own[:4]
    return {"distance": distance, "own": own, "key": torch.randperm(count, generator=generator) * 7 + 3}


def brute_force(data):
    """The six nearest images of every unit by (distance, sample key): distance, key and own, padded."""
    lists = []
    for unit in range(data["distance"].shape[1]):
        distinct = {
            key: (distance, key, own)
            for distance, key, own in zip(
                data["distance"][:, unit].tolist(), data["key"].tolist(), data["own"][:, unit].tolist(), strict=True
            )
        }
        nearest = sorted(distinct.values())[:6]
        lists.append(nearest + [(math.inf, None, None)] * (6 - len(nearest)))
    return lists


def as_lists(nearest: NearestPatches):
    columns = (nearest.distance, nearest.sample_key, nearest.own)
    rows = zip(*(column.T.tolist() for column in columns), strict=True)
    lists = [list(zip(*row, strict=True)) for row in rows]
    return [[entry if math.isfinite(entry[0]) else (math.inf, None, None) for entry in entries] for entries in lists]


def batch_of(distance, own, key):
    """Images at these distances from the units, ``(B, U)``."""
    nothing = torch.zeros_like(key)
    return PatchDistances(
        latent=torch.zeros(len(key), 1, 1, 1), near=distance, cell=torch.zeros_like(distance).long(), allowed=own,
        keys=key, labels=nothing,
    )  # fmt: skip


def collect(data, order, size) -> NearestPatches:
    nearest = NearestPatches.empty(6, data["distance"].shape[1], 1, CPU)
    for part in order.split(size):
        if len(part):
            batch = batch_of(**{name: values[part] for name, values in data.items()})
            nearest.update(batch, torch.ones_like(batch.allowed))
    return nearest


@pytest.mark.parametrize("count", [2, 6, 19])
@pytest.mark.parametrize("size", [1, 4, 19])
def test_any_order_and_batch_size_equals_brute_force(count, size):
    for seed in range(3):
        data = draw(max(count, 8), seed=seed)
        data = {name: tensor[:count] for name, tensor in data.items()}
        order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
        for chosen in (torch.arange(count), order):
            nearest = collect(data, chosen, size)
            assert as_lists(nearest) == brute_force(data)
            assert votes(nearest).tolist() == [sum(bool(own) for _, _, own in each) for each in brute_force(data)]


def test_an_image_counts_once():
    data = draw()
    twice = torch.cat([torch.arange(19), torch.arange(0, 19, 2), torch.tensor([0, 0])])
    assert as_lists(collect(data, twice, 5)) == brute_force(data)


def test_votes_by_hand():
    """One unit, eight images at distances 0..7, own are 0, 1, 5 and 7: three of the nearest six."""
    key = torch.arange(8)
    data = {"distance": key[:, None].float(), "own": torch.isin(key, torch.tensor([0, 1, 5, 7]))[:, None], "key": key}
    assert votes(collect(data, key, 8)).tolist() == [3]
    assert votes(NearestPatches.empty(6, 3, 1, CPU)).tolist() == [0, 0, 0]


# -- two processes ---------------------------------------------------------------------------------------------------
def nearest_of_rank(rank, world_size, data, parts):
    nearest = collect(data, torch.tensor(parts[rank], dtype=torch.int64), 3)
    nearest.reduce()
    return nearest.distance, nearest.sample_key, nearest.own


@pytest.mark.parametrize("parts", [
    [list(range(0, 19, 2)), list(range(1, 19, 2))],
    [[], list(range(19))],
    [list(range(19)), []],
    [list(range(19)), list(range(19))],
    [[0, 1], [2]],  # fewer than six images in all
], ids=["strided", "first empty", "second empty", "both all", "few"])  # fmt: skip
def test_two_processes_equal_one(ddp_pool, parts):
    data = draw(seed=1)
    together = torch.tensor(sorted({*parts[0], *parts[1]}))
    alone = collect(data, together, 3)
    for distance, key, own in ddp_pool.run(nearest_of_rank, data, parts):
        result = torch.isfinite(alone.distance)
        assert torch.equal(distance, alone.distance)
        assert torch.equal(key[result], alone.sample_key[result])
        assert torch.equal(own[result], alone.own[result])


# -- no class without prototype --------------------------------------------------------------------------------------
def listed(own, distance):
    """The nearest images, so many of them own, with this distance to the nearest."""
    nearest = NearestPatches.empty(6, len(own), 1, CPU)
    nearest.own = torch.arange(6)[:, None] < torch.tensor(own)
    nearest.distance = torch.tensor(distance) + torch.arange(6.0)[:, None]
    return nearest


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


def test_nothing_is_rescued_where_something_is_left():
    owner = torch.eye(3, dtype=torch.bool).repeat(2, 1)
    owner[:, 2] = False  # class 2 has no prototype at all
    keep = torch.tensor([True, False, False, False, True, False])
    kept, rescued = keep_one_per_class(keep, owner, listed([0] * 6, [1.0] * 6))
    assert torch.equal(kept, keep)
    assert rescued == []


def test_inactive_prototypes_are_never_rescued():
    """``owner`` excludes inactive units, so a class with one active prototype keeps that one."""
    owner = torch.tensor([[False], [True]])
    kept, rescued = keep_one_per_class(torch.zeros(2, dtype=torch.bool), owner, listed([2, 0], [0.0, 9.0]))
    assert kept.tolist() == [False, True]
    assert rescued == [0]


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
    active = model.units().active
    for label in range(8):
        mine = slice(3 * label, 3 * label + 3)
        if (found[mine] >= 3).any():
            assert torch.equal(active[mine], found[mine] >= 3)
        else:
            assert active[mine].sum() == 1
            assert found[mine][active[mine]] == found[mine].max()
    lost = (found.view(8, 3) < 3).all(1).sum().item()
    assert report == {"kept": active.sum().item(), "pruned": 24 - active.sum().item(), "rescued": lost}


def test_rescued_classes_are_listed(monkeypatch):
    texts = []
    monkeypatch.setattr(protometry.callbacks.phases.pruning, "rank_zero_info", texts.append)
    monkeypatch.setattr(protometry.callbacks.phases.pruning, "NEEDED", 7)  # nobody can have seven of six
    model, trainer = projected()
    report = prune(trainer, model)
    assert report == {"kept": 8.0, "pruned": 16.0, "rescued": 8.0}
    assert model.units().owner.sum(0).tolist() == [1] * 8
    assert any("best one: [0, 1, 2, 3, 4, 5, 6, 7]" in text for text in texts)


def test_what_is_pruned_stays_pruned():
    model, trainer = projected()
    prune(trainer, model)
    active = model.units().active.clone()
    report = prune(trainer, model)
    assert torch.equal(model.units().active, active)
    assert report["pruned"] == 0.0


def test_errors():
    trainer = SimpleNamespace(datamodule=tiny_birds())
    with pytest.raises(
        TypeError, match="Expected a model that can be pruned for the action 'prune', but got Classifier"
    ):
        prune(trainer, Classifier(num_classes=8, image_size=(32, 32)))
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
