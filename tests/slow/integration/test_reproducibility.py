"""Reproducibility: settings and seed decide a run; workers, loggers, validation and earlier random numbers do not."""

import random

import numpy as np
import pytest
import torch

from protometry.datamodules import Cub200, SketchBirds
from tests.tiny_runs import DATA, StopError, differences, fit, last, state, stop_at

OTHER_WAYS = [
    "--data.num_workers=2",
    "--data.eval_batch_size=7",
    "--trainer.logger=[{class_path: RunCSVLogger}, {class_path: RunWandbLogger}]",
    "--trainer.log_every_n_steps=1",
    "--trainer.check_val_every_n_epoch=2",
    "--media.limit=1",
]


def test_equal_seeds_give_equal_weights(tmp_path, finished_run):
    torch.manual_seed(99)
    random.seed(99)
    np.random.seed(99)
    fit(tmp_path / "run", *OTHER_WAYS)
    for name in ("state_dict", "optimizer_states"):
        assert differences(state(tmp_path / "run")[name], state(finished_run)[name]) == []


def test_another_seed_gives_another_initialisation(tmp_path):
    for seed in (0, 1):
        with pytest.raises(StopError):
            fit(tmp_path / str(seed), *stop_at(0), f"--seed_everything={seed}")
    first, second = (last(tmp_path / str(seed))["state_dict"] for seed in (0, 1))
    different = differences(first, second)
    assert {"/prototypes.vectors", "/addon.0.weight"} <= set(different)
    assert any(name.startswith("/backbone") for name in different)


def order(seed, epoch, monkeypatch, **changes):
    data = SketchBirds(**DATA | {"seed": seed} | changes)
    monkeypatch.setattr(data, "_epoch", lambda: epoch)
    return [sample_id for batch in data.train_dataloader() for sample_id in batch["sample_id"]]


def test_the_order_depends_on_seed_and_epoch_only(monkeypatch):
    first = order(0, 0, monkeypatch)
    assert sorted(first) == [f"train/{number:05d}" for number in range(48)]
    assert order(0, 0, monkeypatch, batch_size=7, num_workers=2) == first
    others = [order(seed, epoch, monkeypatch) for seed, epoch in ((0, 1), (1, 0), (1, 1))]
    assert len({tuple(ids) for ids in (first, *others)}) == 4


def images(root, epoch, monkeypatch, **changes):
    data = Cub200(str(root), image_size=32, **changes)
    data.setup()
    monkeypatch.setattr(data, "_epoch", lambda: epoch)
    batches = data.train_dataloader()
    return {name: image for batch in batches for name, image in zip(batch["sample_id"], batch["image"], strict=True)}


def test_augmentation_depends_on_seed_epoch_and_sample_only(cub_tree, monkeypatch):
    root = cub_tree()
    first = images(root, 3, monkeypatch, seed=5)
    again = images(root, 3, monkeypatch, seed=5, batch_size=5, num_workers=2)
    assert differences(first, {name: again[name] for name in first}) == []
    for other in (images(root, 4, monkeypatch, seed=5), images(root, 3, monkeypatch, seed=6)):
        assert other.keys() == first.keys()
        assert len(differences({name: other[name] for name in first}, first)) > len(first) / 2
