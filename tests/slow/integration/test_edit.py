"""Edited models: what is removed and why, and what does not change."""

from __future__ import annotations

import torch

from protometry.evaluation.app.explorer import Changes, Explorer
from protometry.evaluation.edit import main
from protometry.evaluation.trained_model import TrainedModel
from protometry.lightning_modules import load_model
from tests.tiny_runs import fit, run_evaluation


def test_removed_units_are_gone_and_all_else_stays(tmp_path, capfd):
    last = "{epochs: 1, on_enter: [project, fit_head], head: {penalty: 1.0e-4}}"
    phases = f"--model.phases={{warm: {{epochs: 1}}, joint: {{epochs: 2}}, last: {last}, joint2: null, last2: null}}"
    fit(tmp_path / "first", phases, model="ProtoPNet")
    run_evaluation(tmp_path / "first")
    before = load_model(tmp_path / "first/checkpoints/last.ckpt")
    used = before.units().active.nonzero().flatten().tolist()
    capfd.readouterr()
    main([str(tmp_path / "first/checkpoints/last.ckpt"), "--remove", f"{used[0]}, {used[2]}", "--experiment", "second"])
    printed = capfd.readouterr().out
    after = load_model(tmp_path / "second/checkpoints/last.ckpt")
    assert "general/accuracy" in printed
    assert not after.units().active[[used[0], used[2]]].any()
    assert torch.equal(after.prototypes.vectors, before.prototypes.vectors)
    assert after.prototypes.sample_id == before.prototypes.sample_id
    assert not torch.equal(after.linear.weight[:, used[1]], before.linear.weight[:, used[1]])
    assert (after.phase.name, after.phase.epochs) == ("edit", 1)
    explorer = Explorer(TrainedModel(tmp_path / "first/checkpoints/last.ckpt"))  # which trains no second run
    sample, changes = explorer.read(sample_id=explorer.test_images[0]), Changes(frozenset([used[0], used[2]]), fit=True)
    with torch.no_grad():
        expected = after(sample["image"][None]).logits
    assert torch.equal(explorer.decide(sample, changes).image.output.logits, expected)
