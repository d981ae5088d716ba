"""A run that is stopped anywhere and resumed ends as one that was not: same weights bit for bit, same metrics.csv."""

import random
import re
import shlex
import signal
import time

import pytest
from lightning import Callback

from protometry.callbacks import RunCheckpoint
from protometry.run_folder.command_line.ending import from_shell
from protometry.run_folder.layout import BEST
from protometry.scripts import evaluate, train
from tests.tiny_runs import (
    EPOCHS,
    SLOWLY,
    STEPS_PER_EPOCH,
    StopError,
    differences,
    fit,
    fit_args,
    last,
    start,
    state,
    stop_at,
)


class Requeue(Callback):
    """Does what Lightning does when SLURM announces the end of a job."""

    def on_train_batch_end(self, trainer, *args):
        if trainer.global_step == 6:
            trainer.save_checkpoint(f"{trainer.default_root_dir}/hpc_ckpt_1.ckpt", weights_only=False)
            raise StopError


def assert_same_run(folder, straight):
    assert differences(state(folder), state(straight)) == []
    assert differences(state(folder, "best"), state(straight, "best")) == []
    assert (folder / "metrics.csv").read_text() == (straight / "metrics.csv").read_text()
    pictures = [sorted(run.glob("prototypes/*")) for run in (folder, straight)]
    assert [(p.name, p.read_bytes()) for p in pictures[0]] == [(p.name, p.read_bytes()) for p in pictures[1]]


# -- in process -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("step", "hook"), [(0, "on_train_batch_start"), (8, "on_validation_batch_end"), (16, "on_save_checkpoint")]
)
def test_stopped_between_epochs(step, hook, tmp_path, finished_run):
    folder = tmp_path / "run"
    with pytest.raises(StopError):
        fit(folder, *stop_at(step, hook))
    fit(folder, "--ckpt_path", "last")
    assert_same_run(folder, finished_run)


def test_stopped_in_the_middle_of_an_epoch(stopped_copy, finished_run):
    assert last(stopped_copy)["global_step"] == 3 * STEPS_PER_EPOCH
    fit(stopped_copy, "--ckpt_path", "last")
    assert_same_run(stopped_copy, finished_run)


def test_stopped_between_the_best_and_the_last_checkpoint(tmp_path, finished_run, monkeypatch):
    save = RunCheckpoint.save

    def dies(self, trainer, name):
        save(self, trainer, name)
        if name == BEST:
            raise StopError

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(RunCheckpoint, "save", dies)
        with pytest.raises(StopError):
            fit(folder)
    assert last(folder)["global_step"] == 3 * STEPS_PER_EPOCH
    fit(folder, "--ckpt_path", str(folder / "checkpoints" / "last.ckpt"))  # the same as "last"
    assert_same_run(folder, finished_run)


def test_stopped_again_and_again_with_two_workers(tmp_path, finished_run):
    folder = tmp_path / "run"
    with pytest.raises(StopError):
        fit(folder, *stop_at(10), "--data.num_workers=2")
    with pytest.raises(StopError):
        fit(folder, *stop_at(19), "--data.num_workers=2", "--ckpt_path", "last")
    fit(folder, "--data.num_workers=2", "--ckpt_path", "last")
    assert_same_run(folder, finished_run)


def test_two_views_stopped_with_two_workers(tmp_path):
    straight, folder = tmp_path / "straight", tmp_path / "run"
    fit(straight, model="PIPNet")
    with pytest.raises(StopError):
        fit(folder, *stop_at(10), "--data.num_workers=2", model="PIPNet")
    fit(folder, "--data.num_workers=2", "--ckpt_path", "last", model="PIPNet")
    assert_same_run(folder, straight)


def test_stopped_by_max_epochs_and_resumed_from_the_saved_config(tmp_path, finished_run):
    folder = tmp_path / "run"
    fit(folder, "--trainer.max_epochs=1")
    config = str(folder / "config.yaml")
    for epochs in (2, EPOCHS):  # twice, since the config is saved again by every start
        more = ["--config", config, "--ckpt_path", "last", f"--trainer.max_epochs={epochs}"]
        train.main(["fit", *more])
    assert_same_run(folder, finished_run)


def test_a_finished_run_stays_as_it_is(run_copy, finished_run):
    fit(run_copy, "--ckpt_path", "last")
    assert_same_run(run_copy, finished_run)


def test_results_of_the_test_split_stay_in_the_table(evaluated_copy):
    table = (evaluated_copy / "metrics.csv").read_text()
    assert "test/general/accuracy" in table
    fit(evaluated_copy, "--test_after_fit=true", "--ckpt_path", "last")
    assert (evaluated_copy / "metrics.csv").read_text() == table


def test_a_checkpoint_of_another_run_starts_a_run_of_its_own(tmp_path, run_copy, stopped_run):
    kept = {path: path.read_bytes() for path in run_copy.rglob("*") if path.is_file()}
    source = stopped_run / "checkpoints" / "last.ckpt"
    with pytest.raises(ValueError, match=r"Expected a folder without a run, but .*copy holds one"):
        fit(run_copy, "--ckpt_path", str(source))
    assert {path: path.read_bytes() for path in run_copy.rglob("*") if path.is_file()} == kept
    fit(tmp_path / "fork", "--ckpt_path", str(source))
    assert differences(state(tmp_path / "fork"), state(run_copy)) == []


# -- requeued by a cluster --------------------------------------------------------------------------------------------
def test_a_requeued_run_needs_no_arguments(stopped_copy, finished_run):
    (stopped_copy / "checkpoints" / "last.ckpt").rename(stopped_copy / "hpc_ckpt_1.ckpt")
    fit(stopped_copy)
    assert_same_run(stopped_copy, finished_run)
    fit(stopped_copy)  # queued once more: the last checkpoint is the newer one now
    assert_same_run(stopped_copy, finished_run)


def test_a_run_requeued_in_the_middle_of_an_epoch_repeats_it(tmp_path, finished_run):
    folder = tmp_path / "run"
    with pytest.raises(StopError):
        fit(folder, "--trainer.callbacks+=tests.slow.integration.test_resume.Requeue")
    for _ in range(2):  # queued once more when it has ended
        fit(folder)
        assert_same_run(folder, finished_run)


def test_killed_before_the_first_checkpoint(tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(StopError):
        fit(folder, *stop_at(0, "on_train_start"))
    fit(folder, "--trainer.max_epochs=1")
    assert (folder / "config.yaml").is_file()


# -- killed -----------------------------------------------------------------------------------------------------------
def wait_for(process, line):
    """Read what the process prints until a line has been seen."""
    for text in process.stdout:
        if line in text:
            return
    pytest.fail(f"the run ended without printing {line!r}")


def test_killed_in_every_phase_with_two_workers(tmp_path, finished_run):
    """Without workers: ``test_kills.py``."""
    moments = random.Random(2)
    folder = tmp_path / "run"
    args = ["--data.num_workers=2"]
    for line in ("", "phase joint 2/2"):
        process = start(*fit_args(folder, *args, SLOWLY))
        if line:
            wait_for(process, line)
        else:
            while not (folder / "checkpoints" / "last.ckpt").exists():
                time.sleep(0.005)
        time.sleep(moments.uniform(0, 0.9))  # an epoch lasts at least 1.2 s
        process.kill()
        assert process.wait() == -signal.SIGKILL
        args = ["--data.num_workers=2", "--ckpt_path", "last"]
    fit(folder, *args)
    assert_same_run(folder, finished_run)


def test_sigterm_during_the_evaluation_names_a_command_that_evaluates(run_copy, monkeypatch, capsys):
    monkeypatch.setattr(train, "after_fit", lambda _: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit) as end:
        from_shell(lambda: fit(run_copy, "--test_after_fit=true", "--ckpt_path=last"))
    assert end.value.code == 143
    said = re.search(r"The training is finished. Evaluate it with `python evaluate.py (.*)`", capsys.readouterr().err)
    evaluate.main([*shlex.split(said[1]), "--limit=8", "--suite=general", "--trainer.accelerator=cpu"])
    assert (run_copy / "evaluation" / "metrics.json").is_file()


@pytest.mark.parametrize(("limit", "more"), [("max_epochs", "2"), ("max_steps", "9"), ("max_time", "00:01:00:00")])
def test_a_schedule_that_a_limit_cut_short_goes_on_with_a_larger_one(limit, more, tmp_path):
    flag, first = f"--trainer.{limit}", {"max_epochs": "1", "max_steps": "4", "max_time": "00:00:00:01"}[limit]
    slow = [SLOWLY] if limit == "max_time" else []
    said = rf"Continue with `--ckpt_path last` and a larger `trainer.{limit}`"
    with pytest.warns(UserWarning, match=said):
        fit(tmp_path / "run", f"{flag}={first}", *slow)
    before = last(tmp_path / "run")["global_step"]
    fit(tmp_path / "run", f"{flag}={more}", "--ckpt_path", "last")
    assert last(tmp_path / "run")["global_step"] > before


def test_sigterm_ends_a_run_with_143(tmp_path, finished_run):
    folder = tmp_path / "run"
    process = start(*fit_args(folder, SLOWLY))
    wait_for(process, "phase warm 1/1")
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 143
    assert last(folder)["global_step"] in (STEPS_PER_EPOCH, 2 * STEPS_PER_EPOCH)
    fit(folder, "--ckpt_path", "last")
    assert_same_run(folder, finished_run)
