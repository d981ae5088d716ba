"""Features of a frozen backbone: kept once, read in every later pass, with the weights of a run that keeps none."""

from __future__ import annotations

import functools
import shutil

import pytest
import torch

from protometry.lightning_modules.backbones import Backbone
from protometry.lightning_modules.backbones.kept_features import KeptFeatures
from tests.callbacks.phases.test_features import run
from tests.tiny_runs import StopError, differences, stop_at

TRAINING, VALIDATION = 48, 16


def counting(monkeypatch):
    """Of every forward of a backbone: the number of images whose features were not found, padding included."""
    counts, find = [], Backbone.forward

    def counted(self, images):
        kept = self.kept is not None and self.kept.find(images) is not None
        counts.append(0 if kept else len(images))
        return find(self, images)

    monkeypatch.setattr(Backbone, "forward", counted)
    return counts


@pytest.fixture
def computed(monkeypatch):
    return counting(monkeypatch)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Of a run that keeps nothing, by model: its folder, its state and the number of images computed."""

    def made(model):
        folder = tmp_path_factory.mktemp("runs") / "shown"
        with pytest.MonkeyPatch.context() as patch:
            counts = counting(patch)
            return folder, run(folder, model=model), sum(counts)

    return functools.cache(made)


def kept_images(cache):
    """The number of images in the only folder of a cache."""
    (folder,) = (cache / "features").iterdir()
    return sum(file.stat().st_size // 36 for file in folder.glob("*.keys"))


@pytest.mark.parametrize("model", ["ProtoPNet", "ProtoPool", "PosthocCBM"])
def test_weights_and_results_are_those_of_a_run_that_keeps_nothing(tmp_path, model, shown, computed):
    folder, expected, passes = shown(model)
    computed.clear()
    cache = f"--data.cache={tmp_path / 'cache'}"
    kept = run(tmp_path / "kept", cache, model=model)
    assert differences(kept, expected) == []
    assert (tmp_path / "kept" / "metrics.csv").read_text() == (folder / "metrics.csv").read_text()
    assert sum(computed) < passes
    assert kept_images(tmp_path / "cache") == TRAINING + VALIDATION
    computed.clear()
    assert differences(run(tmp_path / "again", cache, model=model), expected) == []
    assert not {12, TRAINING} & set(computed)  # no batch of any pass


def test_a_killed_run_goes_on_with_what_is_missing(tmp_path, monkeypatch, shown):
    cache, keep, calls = tmp_path / "cache", KeptFeatures.keep, []

    def killed(self, images, compute):
        calls.append(len(images))
        if len(calls) == 3:
            raise StopError
        return keep(self, images, compute)

    monkeypatch.setattr(KeptFeatures, "keep", killed)
    with pytest.raises(StopError):
        run(tmp_path / "cut", f"--data.cache={cache}")
    before = kept_images(cache)
    assert 0 < before < TRAINING + VALIDATION
    (torn,) = cache.rglob("*.rows")
    with torn.open("ab") as file:
        file.write(b"half of a row")
    monkeypatch.setattr(KeptFeatures, "keep", keep)
    kept = run(tmp_path / "kept", f"--data.cache={cache}")
    assert kept_images(cache) == TRAINING + VALIDATION
    assert differences(kept, shown("ProtoPNet")[1]) == []


def test_a_resume_in_the_middle_of_a_phase(tmp_path, shown):
    cache = f"--data.cache={tmp_path / 'cache'}"
    with pytest.raises(StopError):
        run(tmp_path / "cut", cache, *stop_at(6))
    shutil.rmtree(tmp_path / "cache")
    assert differences(run(tmp_path / "cut", cache, "--ckpt_path", "last"), shown("ProtoPNet")[1]) == []
    assert kept_images(tmp_path / "cache") == TRAINING + VALIDATION


def test_augmentations_that_epochs_show_in_turn(tmp_path):
    """PIPNet: two views of every image, of each of two augmentations."""
    more = ("--data.fixed_augmentations=2", f"--data.cache={tmp_path / 'cache'}")
    kept = run(tmp_path / "kept", *more, model="PIPNet")
    assert kept_images(tmp_path / "cache") == TRAINING * (1 + 2 * 2) + VALIDATION
    assert differences(kept, run(tmp_path / "shown", more[0], model="PIPNet")) == []
    assert differences(kept, run(tmp_path / "endless", model="PIPNet")) != []


def rows_of_a_process(rank, world_size, cache):
    """The images whose features are found after both processes have kept their shares."""
    torch.manual_seed(0)
    backbone, images = torch.nn.Conv2d(3, 8, 4, stride=4), torch.rand(9, 3, 16, 16)
    kept = KeptFeatures(backbone, cache, (16, 16))
    kept.keep(images[rank::world_size], backbone)
    torch.distributed.barrier()
    kept.reload()
    return len(kept), torch.equal(kept.find(images), backbone(images))


def test_processes_read_what_the_others_have_kept(tmp_path, ddp_pool):
    assert ddp_pool.run(rows_of_a_process, tmp_path) == [(9, True), (9, True)]
