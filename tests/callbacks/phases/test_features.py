"""Features of a frozen backbone: kept once, read in every later pass, with the weights of a run that keeps none."""

from __future__ import annotations

import shutil

import pytest

from protometry.callbacks.phases import features as keeping
from tests.tiny_runs import fit, state

FROZEN = {  # phases that do not train the backbone
    "ProtoPNet": "{warm: {epochs: 1, bn: eval}, joint: {epochs: 2, bn: eval, trainable: {backbone: null}}, "
    "last: {epochs: 1, on_enter: [project, fit_head]}, joint2: null, last2: null}",
    "ProtoPool": "{warm: null, joint: {epochs: 3, bn: eval, trainable: {backbone: null}}, last: null}",
    "PIPNet": "{pretrain: null, head: {epochs: 3}, partial: null, full: null, full_from_30: null}",
    "PosthocCBM": "{residual: {epochs: 2}}",
}


def run(folder, *more, model="ProtoPNet"):
    fit(folder, f"--model.phases={FROZEN[model]}", *more, model=model)
    return state(folder)


@pytest.mark.parametrize(
    ("phases", "reason"),
    [
        ("{joint: {epochs: 2}, warm: null, last: null, joint2: null, last2: null}", "trains the backbone"),
        ("{warm: {epochs: 2, bn: train}, joint: null, last: null, joint2: null, last2: null}", "set `bn: eval`"),
    ],
)
def test_a_phase_in_which_features_change_says_why_it_keeps_none(tmp_path, capsys, phases, reason):
    more = ("--data.train_size=16", "--trainer.limit_val_batches=0")
    fit(tmp_path / "run", f"--model.phases={phases}", f"--data.cache={tmp_path / 'cache'}", *more, model="ProtoPNet")
    assert reason in capsys.readouterr().err
    assert not list((tmp_path / "cache").rglob("*.rows"))


def test_a_full_disk_is_noticed_before_anything_is_computed(tmp_path, monkeypatch):
    monkeypatch.setattr(keeping.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**6, 10**6, 1000))
    with pytest.raises(ValueError, match=r"`data.cache` to be on a disk with room for the features of 112 images"):
        run(tmp_path / "run", f"--data.cache={tmp_path / 'cache'}")
    assert not list((tmp_path / "cache").rglob("*.rows"))
