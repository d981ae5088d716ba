"""Whole runs in two processes: ranks stay equal, and projection and evaluation find what one process finds."""

import csv
import hashlib
import json
import math
import shutil
import signal
import socket
import subprocess
import time
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from lightning import Callback

from protometry.callbacks import Interpretability
from protometry.callbacks.evaluation.threshold import fit_threshold
from protometry.callbacks.phases.percentiles import concept_percentiles
from protometry.datamodules import SketchBirds
from protometry.evaluation.evaluate import evaluate
from protometry.evaluation.hardware import Hardware
from protometry.evaluation.predict import predict
from protometry.evaluation.request import Request
from protometry.evaluation.trained_model import TrainedModel
from protometry.lightning_modules import ConceptBottleneck, ProtoPool
from tests.tiny_runs import (
    DATA,
    SLOWLY,
    StopError,
    as_launched,
    differences,
    fit,
    fit_args,
    last,
    start,
    state,
    stop_at,
)

TWO = ["--trainer.devices=2", "--trainer.strategy=ddp", "--data.batch_size=6"]


class Record(Callback):
    """Remembers a hash of the parameters after every step."""

    hashes: list = []  # noqa: RUF012  (read after the run by the process itself)

    def on_train_batch_end(self, trainer, pl_module, *args):
        digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in pl_module.parameters())).hexdigest()
        Record.hashes.append((pl_module.phase.name, digest))


class Score(Callback):
    """A score that only one process finds good."""

    def on_validation_end(self, trainer, pl_module):
        trainer.callback_metrics["score"] = torch.tensor(float(trainer.global_rank))


class Apart(Callback):
    """One process waits for the other, in a call that no handler of Python interrupts."""

    def on_train_batch_start(self, trainer, *args):
        print("apart", flush=True)
        if trainer.is_global_zero:
            time.sleep(60)
        trainer.strategy.barrier()


STOP = [
    *(
        "--trainer.callbacks+=tests.slow.ddp.test_training.Record",
        "--trainer.callbacks+=tests.slow.ddp.test_training.Score",
    ),
    *("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=score", "--trainer.callbacks.mode=max"),
    *("--trainer.callbacks.stopping_threshold=0.5", "--trainer.callbacks.check_on_train_epoch_end=false"),
]


class Plant(Callback):
    """Makes one process differ in the last bit of one number, in the middle of the second phase."""

    def on_train_batch_end(self, trainer, pl_module, *args):
        if trainer.global_step == 6 and trainer.global_rank == 1:
            weight = pl_module.linear.weight.data
            weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(9.0))


def fit_on(rank, world_size, folder, *more, **kinds):
    Record.hashes = []
    error = None
    with as_launched(rank, world_size):
        try:
            fit(folder, *TWO, *more, **kinds)
        except (RuntimeError, StopError) as raised:
            error = repr(raised)
    return Record.hashes, error


def fit_model_on(rank, world_size, folder, model, *more):
    return fit_on(rank, world_size, folder, *more, model=model)


def evaluate_on(rank, world_size, path):
    with as_launched(rank, world_size):
        trained = TrainedModel(path, allow_classes=["tests"])
        request = Request(trained, Interpretability(), overwrite=True, scores=True)
        return evaluate(request, Hardware("cpu", world_size))[0]["metrics"]


def predict_on(rank, world_size, path, output):
    with as_launched(rank, world_size):
        predict(TrainedModel(path, allow_classes=["tests"]), Hardware("cpu", world_size), output=output)


def close(metrics):
    return {key: pytest.approx([e["value"], *e["ci95"], e["n"]], abs=1e-6, nan_ok=True) for key, e in metrics.items()}


def figures(metrics):
    return {key: [entry["value"], *entry["ci95"], entry["n"]] for key, entry in metrics.items()}


@pytest.fixture(scope="module")
def straight(ddp_pool, tmp_path_factory):
    """Folder and step hashes of an uninterrupted run of two processes."""
    folder = tmp_path_factory.mktemp("runs") / "two"
    (first, error), (second, _) = ddp_pool.run(
        fit_on, folder, "--trainer.callbacks+=tests.slow.ddp.test_training.Record"
    )
    assert error is None
    return folder, first, second


def test_ranks_stay_equal_in_every_phase(straight):
    _, first, second = straight
    assert [phase for phase, _ in first] == [
        name for name in ("warm", "joint", "joint", "last", "joint2") for _ in range(4)
    ]
    assert first == second
    assert len({digest for _, digest in first}) == 20


def test_a_planted_difference_ends_the_run_at_the_next_phase(ddp_pool, tmp_path):
    answers = ddp_pool.run(fit_on, tmp_path / "run", "--trainer.callbacks+=tests.slow.ddp.test_training.Plant")
    for _, error in answers:
        assert "The processes hold different parameters or buffers at the start of phase 'last'" in error
    assert last(tmp_path / "run")["global_step"] == 12


def test_a_resumed_run_ends_with_the_same_weights(ddp_pool, tmp_path, straight):
    folder = tmp_path / "run"
    for _, error in ddp_pool.run(fit_on, folder, *stop_at(10)):
        assert error == "StopError()"
    for _, error in ddp_pool.run(fit_on, folder, "--ckpt_path", "last"):
        assert error is None
    assert differences(state(folder), state(straight[0])) == []
    assert (folder / "metrics.csv").read_text() == (straight[0] / "metrics.csv").read_text()


APART = "--trainer.callbacks+=tests.slow.ddp.test_training.Apart"  # in which the processes differ


@pytest.mark.parametrize(
    ("rank", "moment", "callback"), [(1, "phase warm 1/1", SLOWLY), (0, "apart", APART), (1, "apart", APART)]
)
def test_sigterm_to_one_process_stops_both(rank, moment, callback, tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MASTER_PORT", str(free.getsockname()[1]))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    processes = []
    for each in (0, 1):
        with as_launched(each, 2):
            processes.append(start(*fit_args(tmp_path / "run", *TWO, callback), stderr=subprocess.STDOUT))
    assert any(moment in line for line in processes[0].stdout)
    processes[rank].send_signal(signal.SIGTERM)
    said, _ = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [143, 143]
    assert said.endswith("Stopped by SIGTERM. Training continues from its last epoch with `--ckpt_path last`.\n")


def sources(folder):
    with (folder / "prototypes" / "last-epoch03.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_projection_finds_the_same_sources_as_one_process(ddp_pool, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    with pytest.raises(StopError):
        fit(one, *stop_at(24), "--data.batch_size=6")
    shutil.copytree(one, two)
    more = ["--ckpt_path", "last", "--trainer.max_epochs=4"]
    fit(one, *more, "--data.batch_size=6")
    for _, error in ddp_pool.run(fit_on, two, *more):
        assert error is None
    for first, second in zip(sources(one), sources(two), strict=True):
        for name in ("unit", "class", "sample_id", "row", "col", "x0", "y0", "x1", "y1", "duplicate_of"):
            assert first[name] == second[name]
        assert float(first["distance"]) == pytest.approx(float(second["distance"]), abs=1e-6)


def test_two_views_train_as_in_one_process(ddp_pool, tmp_path):
    """The tanh term sees the images of both processes: with BatchNorm at rest, two batches of 6 are one of 12."""
    phases = ", ".join(
        f"{name}: {{epochs: 1, bn: eval, optimizer: {{name: SGD}}}}" for name in ("pretrain", "head", "partial", "full")
    )
    phases += ", full_from_30: null, full_from_60: null"
    fit(tmp_path / "one", f"--model.phases={{{phases}}}", model="PIPNet")
    ddp_pool.run(fit_model_on, tmp_path / "two", "PIPNet", f"--model.phases={{{phases}}}")
    one, two = (last(tmp_path / name)["state_dict"] for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        torch.testing.assert_close(two[name], tensor, rtol=1e-4, atol=1e-6, msg=name)


def test_evaluation_of_an_odd_number_of_images(ddp_pool, straight, tmp_path):
    path = straight[0] / "checkpoints" / "best.ckpt"
    reference, scores = evaluate_on(0, 1, path), path.parents[1] / "evaluation" / "scores.csv"
    first_scores = scores.read_text()
    assert reference["general/accuracy"]["n"] == 33
    for metrics in ddp_pool.run(evaluate_on, path):
        assert figures(metrics) == close(reference)
    assert scores.read_text() == first_scores
    predict_on(0, 1, path, tmp_path / "one.csv")
    ddp_pool.run(predict_on, path, tmp_path / "two.csv")
    assert (tmp_path / "two.csv").read_text() == (tmp_path / "one.csv").read_text()


MULTILABEL = ["--model.task=multilabel", "--data.task=attributes"]


@pytest.mark.parametrize(
    ("model", "more", "stop", "steps"),
    [
        pytest.param("PIPNet", [], 10, 20, id="PIPNet"),
        # the noise of the slots is the same in both processes
        pytest.param("ProtoPool", [], 10, 20, id="ProtoPool"),
        pytest.param("ProtoPool", MULTILABEL, 10, 20, id="ProtoPool multilabel"),
        pytest.param("ProtoTree", [], 10, 16, id="ProtoTree"),
        pytest.param("ProtoViT", [], 14, 20, id="ProtoViT"),  # stopped while slots are trained
        pytest.param("BagNet", ["--model.phases={train: {epochs: 2}}"], 6, 8, id="BagNet"),  # as a Classifier is
        # stopped once the percentiles are stored
        pytest.param("ConceptBottleneck", [], 10, 16, id="ConceptBottleneck"),
        pytest.param("IntCEM", ["--model.phases={joint: {epochs: 2}}"], 6, 8, id="IntCEM"),  # a CEM, and more
        pytest.param("QPM", [], 10, 16, id="QPM"),  # stopped once features are selected
    ],
)
def test_every_model_is_equal_on_both_ranks_and_resumes(ddp_pool, tmp_path, model, more, stop, steps):
    straight, cut = tmp_path / "straight", tmp_path / "cut"
    record = "--trainer.callbacks+=tests.slow.ddp.test_training.Record"
    (first, error), (second, _) = ddp_pool.run(fit_model_on, straight, model, record, *more)
    assert error is None
    assert first == second
    assert len({digest for _, digest in first}) == len(first) == steps
    for _, error in ddp_pool.run(fit_model_on, cut, model, *stop_at(stop), *more):
        assert error == "StopError()"
    for _, error in ddp_pool.run(fit_model_on, cut, model, "--ckpt_path", "last", *more):
        assert error is None
    assert differences(state(cut), state(straight)) == []
    assert (cut / "metrics.csv").read_text() == (straight / "metrics.csv").read_text()


def fit_a_head_on(rank, world_size, folder, keep):
    phases = "--model.phases={warm: {epochs: 1}, joint: null, last: {epochs: 3}, joint2: null}"
    with as_launched(rank, world_size), mock.patch.object(SketchBirds, "fixed_training_images", keep):
        fit(folder, *TWO, phases, "--data.train_size=47", model="ProtoPNet")


def test_a_head_trains_on_kept_scores_as_on_images(ddp_pool, tmp_path):
    for keep in (True, False):
        ddp_pool.run(fit_a_head_on, tmp_path / str(keep), keep)
    assert differences(state(tmp_path / "True"), state(tmp_path / "False")) == []


def test_a_post_hoc_bank_is_that_of_one_process_and_its_residual_resumes(ddp_pool, tmp_path):
    """A batch of 12 in one process, of 6 in each of two; the first cut repeats the fit, the second does not."""
    one, two = tmp_path / "one", tmp_path / "two"
    fit(one, model="PosthocCBM")
    record = "--trainer.callbacks+=tests.slow.ddp.test_training.Record"
    (first, error), (second, _) = ddp_pool.run(fit_model_on, two, "PosthocCBM", record)
    assert error is None
    assert first == second
    assert len({digest for _, digest in first}) == 1 + 8  # 4 steps that change nothing, and two epochs of the residual
    weights, expected = last(two)["state_dict"], last(one)["state_dict"]
    bank = [name for name in expected if not name.startswith("residual")]
    assert differences({n: weights[n] for n in bank}, {n: expected[n] for n in bank}) == []
    assert (two / "concepts.csv").read_text() == (one / "concepts.csv").read_text()
    for step in (2, 7):
        cut = tmp_path / f"cut{step}"
        for more in (stop_at(step), ["--ckpt_path", "last"]):
            ddp_pool.run(fit_model_on, cut, "PosthocCBM", *more)
        assert differences(state(cut), state(two)) == []


@pytest.mark.parametrize("model", ["ProtoPNet", "ProtoPool"])
def test_a_solved_head_is_that_of_one_process_and_resumes(ddp_pool, tmp_path, model):
    """47 images: 24 and 23; the first cut, of one model, repeats the action, the second does not."""
    others = "warm: null, joint: null" + ", joint2: null, last2: null" * (model == "ProtoPNet")
    enter = "project" if model == "ProtoPNet" else "harden_assignment, project"
    solved = [
        f"--model.phases={{{others}, last: {{epochs: 2, on_enter: [{enter}, fit_head]}}}}",
        "--data.train_size=47",
    ]
    one, two = tmp_path / "one", tmp_path / "two"
    fit(one, *solved, model=model)
    for _, error in ddp_pool.run(fit_model_on, two, model, *solved):
        assert error is None
    assert differences(last(two)["state_dict"], last(one)["state_dict"]) == []
    assert (two / "head_path.csv").read_text() == (one / "head_path.csv").read_text()
    for step in (2, 6) if model == "ProtoPNet" else (6,):
        cut = tmp_path / f"cut{step}"
        for more in (stop_at(step), ["--ckpt_path", "last"]):
            ddp_pool.run(fit_model_on, cut, model, *solved, *more)
        assert differences(state(cut), state(two)) == []


def test_the_decision_threshold_is_that_of_one_process(ddp_pool, tmp_path):
    """33 validation images: 17 and 16; the threshold is one number over all of them."""
    more = [*MULTILABEL, "--data.val_size=33", "--trainer.max_epochs=1"]
    for _, error in ddp_pool.run(fit_model_on, tmp_path / "run", "ProtoPool", *more):
        assert error is None
    weights = last(tmp_path / "run")["state_dict"]
    data = SketchBirds(**{**DATA, "val_size": 33}, task="attributes")
    model = ProtoPool(num_classes=20, image_size=(32, 32), task="multilabel", num_prototypes=12, slots_per_class=2,
                      prototype_channels=16)  # fmt: skip
    model.load_state_dict(weights)
    model.decision_threshold.zero_()
    fit_threshold(model, data)
    assert torch.equal(model.decision_threshold, weights["decision_threshold"])
    assert model.decision_threshold != 0


def test_percentiles_are_those_of_one_process(ddp_pool, tmp_path):
    """Over all 47 training images: 24 and 23."""
    more = ["--data.train_size=47", "--trainer.max_epochs=3"]
    for _, error in ddp_pool.run(fit_model_on, tmp_path / "run", "ConceptBottleneck", *more):
        assert error is None
    weights = last(tmp_path / "run")["state_dict"]
    model = ConceptBottleneck(num_classes=8, image_size=(32, 32), num_concepts=20)
    model.load_state_dict(weights)
    model.percentiles.zero_()
    concept_percentiles(SimpleNamespace(datamodule=SketchBirds(**{**DATA, "train_size": 47})), model)
    assert torch.equal(model.percentiles, weights["percentiles"])
    assert (model.percentiles != 0).all()


def test_launched_from_the_shell(tmp_path, straight):
    folder = tmp_path / "run"
    process = start(*fit_args(folder, *TWO, "--test_after_fit=true"))
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert differences(state(folder), state(straight[0])) == []
    path = folder / "checkpoints" / "best.ckpt"
    trained = TrainedModel(path, allow_classes=["tests"])
    content, own = evaluate(Request(trained, Interpretability(["quanproto", "general/f1"]), maps=True), Hardware("cpu"))
    reference = content["metrics"]
    for arguments in ([], ["--overwrite", "true"]):  # the result of training itself, then of another command
        if arguments:
            arguments += ["--trainer.devices=2", "--trainer.accelerator=cpu", "--allow_classes=tests"]
            arguments += ["--ckpt_path", str(path), "--maps", "true"]
            process = start("run", *arguments, script="evaluate.py")
            said, _ = process.communicate()
            assert process.returncode == 0, said
        result = json.loads((folder / "evaluation" / "metrics.json").read_text())["metrics"]
        assert {key: math.nan if entry["value"] is None else entry["value"] for key, entry in result.items()} == (
            pytest.approx({key: entry["value"] for key, entry in reference.items()}, abs=1e-6, nan_ok=True)
        )
    for name in ("maps.npy", "boxes.npy"):
        np.testing.assert_array_equal(np.load(folder / "evaluation" / name), np.load(own / name))


def test_early_stopping_ends_a_phase_in_all_processes(ddp_pool, tmp_path):
    """Also if it listens to a score that differs between them."""
    (first, error), (second, _) = ddp_pool.run(fit_on, tmp_path / "two", *STOP)
    assert error is None
    assert [phase for phase, _ in first] == [name for name in ("warm", "joint", "last", "joint2") for _ in range(4)]
    assert first == second
    assert last(tmp_path / "two")["training"]["complete"]
