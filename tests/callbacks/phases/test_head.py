"""The action that solves the last layer: which images it reads, what it writes, and which plans are refused."""

import csv
from types import SimpleNamespace

import pytest
import torch

from protometry.callbacks.phases import phase_schedule
from protometry.callbacks.phases.head import HEAD_PATH, read_head_path
from tests.callbacks.phases.solved import LAST, solved
from tests.lightning_modules.registry import TINY_PROTOPNET
from tests.tiny_runs import fit, last


def test_the_path_is_written_and_does_not_depend_on_the_batches(tmp_path):
    model, report = solved(tmp_path / "a", batch_size=8)
    again, same = solved(tmp_path / "b", batch_size=5)
    assert report == same
    assert torch.equal(model.linear.weight, again.linear.weight)
    files = [(tmp_path / name / "head_path.csv").read_text() for name in "ab"]
    assert files[0] == files[1]
    rows = list(csv.DictReader(files[0].splitlines()))
    (chosen,) = (row for row in rows if row["chosen"] == "True")
    assert {name: float(chosen[name]) for name in report} == pytest.approx(report)
    path = read_head_path(tmp_path / "a", model.linear.weight)
    assert path.penalties == [float(row["penalty"]) for row in rows]
    assert path.chosen == rows.index(chosen)
    assert [float((weight != 0).sum() / 8) for weight in path.weights] == [
        float(row["weights_per_class"]) for row in rows
    ]
    assert read_head_path(tmp_path / "a", 2 * model.linear.weight) is None  # was trained further
    fixed = {**LAST, "last": {**LAST["last"], "head": {"penalty": chosen and float(chosen["penalty"])}}}
    _, report = solved(tmp_path / "c", fixed)
    assert report["objective"] == pytest.approx(float(chosen["objective"]), rel=1e-6)


def test_a_damaged_path_is_refused(tmp_path):
    (tmp_path / f"{HEAD_PATH}.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ValueError, match=r"to hold the solved last layers of its run, but .* Remove the file"):
        read_head_path(tmp_path, torch.ones(2, 2))


def test_nothing_is_logged_as_calibrated_without_validation_images(monkeypatch):
    lines, data = [], SimpleNamespace(has_validation=False)
    monkeypatch.setattr(phase_schedule, "rank_zero_info", lines.append)
    trainer = SimpleNamespace(datamodule=data, current_epoch=0, loggers=[], callbacks=[])
    model = TINY_PROTOPNET(num_classes=8, image_size=(32, 32))
    phase_schedule.PhaseSchedule()._run(("calibrate",), trainer, model, 0)
    assert lines == []


def test_a_refusal_reaches_all_processes(tmp_path):
    """Those that wait for the solution of the first."""
    sent = []
    with pytest.raises(ValueError, match="some active unit to vary over the training images"):
        solved(tmp_path, change=lambda model: model.addon[-2].weight.data.zero_(), sent=sent)
    assert [type(value) for value in sent] == [ValueError]


def test_plans_that_cannot_be_solved_are_refused_before_training(tmp_path):
    with pytest.raises(ValueError, match=r"`phases.train.on_enter` to leave out 'fit_head', because ProtoTree has no"):
        fit(tmp_path, "--model.phases.train={epochs: 1, trainable: {prototypes: 0}, losses: {cross_entropy: 1}, "
            "bn: eval, on_enter: [fit_head]}", model="ProtoTree")  # fmt: skip


def test_a_run_ends_with_the_solution(tmp_path):
    """By flags alone, in three epochs of the last phase: what is best is what the action left."""
    phases = "{warm: {epochs: 1}, joint: null, joint2: null, last2: null, last: {epochs: 3, trainable: {head: 0.1}}}"
    flags = ["--model.phases.last.on_enter=[project, fit_head]", "--model.phases.last.head.penalty=0.01"]
    fit(tmp_path / "run", f"--model.phases={phases}", *flags, model="ProtoPNet")
    assert last(tmp_path / "run")["hyper_parameters"]["phases"]["last"]["head"]["penalty"] == 0.01
    weights = [last(tmp_path / "run", name)["state_dict"] for name in ("last", "best")]
    assert torch.equal(weights[0]["linear.weight"], weights[1]["linear.weight"])
    used = (weights[0]["linear.weight"] != 0).any(dim=0)
    assert torch.equal(weights[0]["prototypes.active"], used)
    with (tmp_path / "run" / "head_path.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (weights[0]["linear.weight"] != 0).sum() / 8 == pytest.approx(float(row["weights_per_class"]))
