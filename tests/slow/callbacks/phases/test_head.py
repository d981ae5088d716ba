"""The action that solves the last layer: which images it reads, what it writes, and which plans are refused."""

import csv

import pytest

from tests.tiny_runs import fit, last


def test_a_pipnet_ends_with_the_solution(tmp_path):
    phase = "{epochs: 2, trainable: {head: 0.05}, losses: {pipnet_class: 1}, bn: eval, on_enter: [fit_head]}"
    head = "--model.phases.last.head={penalty: 0.003, others: 1, nonnegative: %s}"
    with pytest.raises(ValueError, match=r"`phases.last.head.nonnegative` to be true, because PIPNet has no negative"):
        fit(tmp_path / "refused", f"--model.phases.last={phase}", head % "false", model="PIPNet")
    fit(tmp_path / "run", f"--model.phases.last={phase}", head % "true", model="PIPNet")
    weight = last(tmp_path / "run")["state_dict"]["linear.weight"]
    assert weight.min() == 0
    with (tmp_path / "run" / "head_path.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (weight > 0).sum() / 8 == pytest.approx(float(row["weights_per_class"])) != 0
