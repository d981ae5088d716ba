"""Features of a frozen backbone: kept once, read in every later pass, with the weights of a run that keeps none."""

from __future__ import annotations

import shutil

import pytest
import torch

from protometry.callbacks.phases import features as keeping
from protometry.lightning_modules.backbones import Backbone
from protometry.lightning_modules.backbones.kept_features import KeptFeatures
from tests.tiny_runs import StopError, differences, fit, state, stop_at

FROZEN = {  # phases that do not train the backbone
    "ProtoPNet": "{warm: {epochs: 1, bn: eval}, joint: {epochs: 2, bn: eval, trainable: {backbone: null}}, "
    "last: {epochs: 1, on_enter: [project, fit_head]}, joint2: null, last2: null}",
    "ProtoPool": "{warm: null, joint: {epochs: 3, bn: eval, trainable: {backbone: null}}, last: null}",
    "PIPNet": "{pretrain: null, head: {epochs: 3}, partial: null, full: null, full_from_30: null}",
    "PosthocCBM": "{residual: {epochs: 2}}",
}
TRAINING, VALIDATION = 48, 16


@pytest.fixture
def computed(monkeypatch):
    """Of every forward of a backbone: the number of images whose features were not found, padding included."""
    counts, find = [], Backbone.forward

    def counted(self, images):
        kept = self.kept is not None and self.kept.find(images) is not None
        counts.append(0 if kept else len(images))
        return find(self, images)

    monkeypatch.setattr(Backbone, "forward", counted)
    return counts


def run(folder, *more, model="ProtoPNet"):
    fit(folder, f"--model.phases={FROZEN[model]}", *more, model=model)
    return state(folder)


def kept_images(cache):
    """The number of images in the only folder of a cache."""
    (folder,) = (cache / "features").iterdir()
    return sum(file.stat().st_size // 36 for file in folder.glob("*.keys"))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["ProtoPNet", "ProtoPool", "PosthocCBM"])
def test_weights_and_results_are_those_of_a_run_that_keeps_nothing(tmp_path, model, computed):
    shown = run(tmp_path / "shown", model=model)
    cache, passes = f"--data.cache={tmp_path / 'cache'}", sum(computed)
    computed.clear()
    kept = run(tmp_path / "kept", cache, model=model)
    assert differences(kept, shown) == []
    assert (tmp_path / "kept" / "metrics.csv").read_text() == (tmp_path / "shown" / "metrics.csv").read_text()
    assert sum(computed) < passes
    assert kept_images(tmp_path / "cache") == TRAINING + VALIDATION
    computed.clear()
    assert differences(run(tmp_path / "again", cache, model=model), shown) == []
    assert not {12, TRAINING} & set(computed)  # no batch of any pass


@pytest.mark.slow
def test_a_killed_run_goes_on_with_what_is_missing(tmp_path, monkeypatch):
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
    assert differences(kept, run(tmp_path / "shown")) == []


@pytest.mark.slow
def test_a_resume_in_the_middle_of_a_phase(tmp_path):
    straight, cache = run(tmp_path / "straight"), f"--data.cache={tmp_path / 'cache'}"
    with pytest.raises(StopError):
        run(tmp_path / "cut", cache, *stop_at(6))
    shutil.rmtree(tmp_path / "cache")
    assert differences(run(tmp_path / "cut", cache, "--ckpt_path", "last"), straight) == []
    assert kept_images(tmp_path / "cache") == TRAINING + VALIDATION


@pytest.mark.slow
def test_augmentations_that_epochs_show_in_turn(tmp_path):
    """PIPNet: two views of every image, of each of two augmentations."""
    more = ("--data.fixed_augmentations=2", f"--data.cache={tmp_path / 'cache'}")
    kept = run(tmp_path / "kept", *more, model="PIPNet")
    assert kept_images(tmp_path / "cache") == TRAINING * (1 + 2 * 2) + VALIDATION
    assert differences(kept, run(tmp_path / "shown", more[0], model="PIPNet")) == []
    assert differences(kept, run(tmp_path / "endless", model="PIPNet")) != []


@pytest.mark.parametrize(
    ("phases", "reason"),
    [
        ("{joint: {epochs: 2}, warm: null, last: null, joint2: null, last2: null}", "trains the backbone"),
        ("{warm: {epochs: 2, bn: train}, joint: null, last: null, joint2: null, last2: null}", "set `bn: eval`"),
    ],
)
def test_a_phase_in_which_features_change_says_why_it_keeps_none(tmp_path, capsys, phases, reason):
    more = ("--model.backbone={name: resnet18}", "--data.train_size=16", "--trainer.limit_val_batches=0")
    fit(tmp_path / "run", f"--model.phases={phases}", f"--data.cache={tmp_path / 'cache'}", *more, model="ProtoPNet")
    assert reason in capsys.readouterr().err
    assert not list((tmp_path / "cache").rglob("*.rows"))


def test_a_full_disk_is_noticed_before_anything_is_computed(tmp_path, monkeypatch):
    monkeypatch.setattr(keeping.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**6, 10**6, 1000))
    with pytest.raises(ValueError, match=r"`data.cache` to be on a disk with room for the features of 112 images"):
        run(tmp_path / "run", f"--data.cache={tmp_path / 'cache'}")
    assert not list((tmp_path / "cache").rglob("*.rows"))


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
