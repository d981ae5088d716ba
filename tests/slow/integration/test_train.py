"""One training run: what lies in its folder, and that the folder says everything needed to go on or start over."""

from unittest import mock

import wandb

from protometry.callbacks import read_checkpoint
from protometry.callbacks.run import wandb_logger
from protometry.scripts import train
from tests.integration.test_train import rows
from tests.tiny_runs import fit, fit_args
from tests.wandb_files import segments


def test_what_wandb_receives(tmp_path, monkeypatch):
    starts = []  # a fake of W&B: one run each time

    def init(**arguments):
        starts.append(mock.MagicMock(arguments=arguments, summary={}))
        return starts[-1]

    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.setattr(wandb_logger, "wandb_mode", lambda: "offline")
    folder, loggers = tmp_path / "birds" / "first", "--trainer.logger+=protometry.callbacks.RunWandbLogger"
    args = [*fit_args(folder, loggers, "--runs", str(tmp_path), "--experiment", "birds/first")]
    train.main([*args, "--trainer.max_epochs=4", "--trainer.log_every_n_steps=3"])
    cli = train.main([*args, "--ckpt_path", "last", "--test_after_fit=true"])

    assert {segment.arguments["name"] for segment in starts} == {"birds/first"}
    logged = [call.args[0] for segment in starts for call in segment.log.call_args_list]
    steps = [row for row in logged if "train/loss_step" in row]
    assert [row["trainer/global_step"] for row in steps] == [0, 2, 4, 5, 8, 11, 12, 14, 16]
    assert [row["phase/joint"] for row in steps if "phase/joint" in row] == [1, 1, 2, 2]
    rates = [{key for key in row if key.startswith("lr/")} for row in steps]
    assert rates[0] == {"lr/addon", "lr/prototypes"}
    assert rates[6] == {"lr/head"}
    assert all(row[key] > 0 for row, keys in zip(steps, rates, strict=True) for key in keys)
    updates = [call.args[0] for call in starts[0].config.update.call_args_list]
    assert {"phases": ["warm", "joint", "last", "joint2"]} in updates
    best = [row["val/general/accuracy"] for row in rows(folder) if row["epoch"] == "3" and row["val/general/accuracy"]]
    assert starts[0].summary["val/general/accuracy"] == {"max": float(best[0])}  # epoch 3 alone is selectable
    assert "val/general/accuracy" not in starts[1].summary
    assert cli.trainer.loggers[1].best["val/general/accuracy"] == float(best[0])
    assert "test/general/accuracy" in logged[-1]
    assert not [key for row in logged for key in row if key.startswith("general/")]


def test_a_resumed_run_continues_its_wandb_run(tmp_path):
    folder = tmp_path / "run"
    loggers = "--trainer.logger=[{class_path: RunCSVLogger}, {class_path: RunWandbLogger}]"
    fit(folder, loggers, "--trainer.max_epochs=1")
    run_id = read_checkpoint(folder / "checkpoints" / "last.ckpt")["logger_run_ids"]["RunWandbLogger"]
    cli = fit(folder, loggers, "--trainer.max_epochs=2", "--ckpt_path", "last")
    assert cli.trainer.loggers[1].run_id == run_id
    source = folder / "checkpoints" / "last.ckpt"
    cli = fit(tmp_path / "fork", loggers, "--trainer.max_epochs=2", "--ckpt_path", str(source))
    assert cli.trainer.loggers[1].run_id != run_id
    assert [segment.run.run_id for segment in segments(folder)] == [run_id, run_id]
