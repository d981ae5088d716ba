"""The table of metrics on disk: whole lines after any crash, and one table for a run and its resumptions."""

import csv
import resource

import pytest
import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

from protometry.callbacks.run.csv_logger import MetricsCsv, RunCSVLogger

FIT = {"accelerator": "cpu", "max_epochs": 4, "enable_progress_bar": False, "enable_model_summary": False}


class Tiny(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch[0]).square().mean()
        self.log("train/loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", self.layer(batch[0]).square().mean())
        if self.current_epoch >= 2:
            self.log("val/late", 1.0)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Crash(Callback):
    """Stops the run in the middle of an epoch."""

    def __init__(self, step):
        self.step = step

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == self.step:
            raise RuntimeError("killed")


def fit(folder, logger, callbacks=(), ckpt_path=None):
    torch.manual_seed(0)
    data = DataLoader(TensorDataset(torch.arange(12.0).view(6, 2) / 12), batch_size=2)
    keep = ModelCheckpoint(folder / "checkpoints", save_last=True, save_on_train_epoch_end=True)
    trainer = Trainer(**FIT, logger=logger, callbacks=[*callbacks, keep], log_every_n_steps=2, default_root_dir=folder)
    trainer.fit(Tiny(), data, data, ckpt_path=ckpt_path, weights_only=False)


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


# -- metrics.csv ------------------------------------------------------------------------------------------------------
def test_header_grows_and_columns_are_sorted(tmp_path):
    path = tmp_path / "metrics.csv"
    table = MetricsCsv(path, 0)
    for metrics, step in (({"b": 1.5, "epoch": 0}, 0), ({"a": torch.tensor(2)}, 1), ({"b": float("nan")}, 2)):
        table.log_metrics(metrics, step)
        table.save()
    assert path.read_text() == "step,epoch,a,b\n0,0,,1.5\n1,,2,\n2,,,nan\n"
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.csv"]


def test_resume_drops_a_line_cut_off_by_a_crash(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n0,0.5\n9,0.25\n1")  # the last row was meant to be 10,0.125
    table = MetricsCsv(path, resume_step=10)
    table.log_metrics({"loss": torch.tensor(0.25)}, 9)  # there already
    table.log_metrics({"loss": 0.125}, 10)
    table.save()
    assert path.read_text() == "step,loss\n0,0.5\n9,0.25\n10,0.125\n"


def test_a_failing_rewrite_leaves_the_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "metrics.csv"
    table = MetricsCsv(path, 0)
    table.log_metrics({"a": 1}, 0)
    table.save()

    def full_disk(self, data):
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError("No space left on device")

    monkeypatch.setattr(type(path), "write_bytes", full_disk)
    table.log_metrics({"b": 1}, 1)
    with pytest.raises(OSError, match="No space"):
        table.save()
    monkeypatch.undo()
    assert path.read_text() == "step,a\n0,1\n"
    MetricsCsv(path, resume_step=1)
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.csv"]


@pytest.mark.parametrize("room", [0, 1, 7])  # bytes that the disk still takes, of a row of 8
def test_a_disk_that_fills_up_leaves_whole_rows_and_no_gap(tmp_path, room):
    path, soft_hard = tmp_path / "metrics.csv", resource.getrlimit(resource.RLIMIT_FSIZE)
    table = MetricsCsv(path, 0)
    for step in (10, 11):
        table.log_metrics({"loss": 0.25}, step)
        table.save()
    table.log_metrics({"loss": 0.75}, 12)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, soft_hard[1]))  # writes return short, too
    try:
        with pytest.raises(OSError, match=r"metrics\.csv"):
            table.save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, soft_hard)
    assert path.read_text() == "step,loss\n10,0.25\n11,0.25\n"
    table.save()
    assert path.read_text() == "step,loss\n10,0.25\n11,0.25\n12,0.75\n"


def test_rows_that_were_glued_together_are_dropped_and_said(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss,acc\n0,0.5,0.1\n1,0.42,0.25,0.3\n\0\0\0,1,2\n3,0.25\n4,,0.5\n")
    with pytest.warns(UserWarning, match=r"3 of 5 rows of .*metrics\.csv do not fit its header and are left out"):
        MetricsCsv(path, resume_step=9)
    assert path.read_text().split() == ["step,acc,loss", "0,0.1,0.5", "4,0.5,"]


@pytest.mark.parametrize("crash_at", [7, 9])  # in the middle of epoch 2, and at its end: 3 batches an epoch
def test_resumed_run_writes_the_same_file_as_a_straight_one(tmp_path, crash_at):
    fit(tmp_path / "straight", RunCSVLogger(str(tmp_path / "straight")))
    folder = tmp_path / "resumed"
    with pytest.raises(RuntimeError, match="killed"):
        fit(folder, RunCSVLogger(str(folder)), [Crash(crash_at)])
    interrupted = rows(folder / "metrics.csv")
    last = folder / "checkpoints" / "last.ckpt"
    step = torch.load(last, weights_only=False)["global_step"]
    assert step == crash_at // 3 * 3
    fit(folder, RunCSVLogger(str(folder), resume_step=step), ckpt_path=last)
    straight = (tmp_path / "straight" / "metrics.csv").read_text()
    assert (folder / "metrics.csv").read_text() == straight
    assert [row["val/loss"] != "" for row in rows(folder / "metrics.csv")].count(True) == 4
    assert max(int(row["step"]) for row in interrupted) >= 5
    assert len({tuple(row.values()) for row in rows(folder / "metrics.csv")}) == len(straight.splitlines()) - 1


def test_fresh_run_never_touches_an_earlier_one(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,loss\n0,0.5\n")
    with pytest.raises(ValueError, match=rf"without metrics.csv, but got {tmp_path}.*--ckpt_path last.*--experiment"):
        RunCSVLogger(str(tmp_path))
    assert (tmp_path / "metrics.csv").read_text() == "step,loss\n0,0.5\n"


def test_resume_from_before_the_first_batch_starts_the_table_again(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,loss\n0,0.5\n")
    logger = RunCSVLogger(str(tmp_path), resume_step=0)
    logger.log_metrics({"loss": 0.25}, step=0)
    assert (tmp_path / "metrics.csv").read_text() == "step,loss\n0,0.25\n"


def test_run_folder_is_the_log_folder_and_gets_no_other_file(tmp_path):
    logger = RunCSVLogger(str(tmp_path / "run"))
    logger.log_hyperparams({"lr": 0.1})
    logger.log_metrics({"loss": 0.5}, step=0)
    logger.finalize("success")
    assert Trainer(**FIT, logger=logger).log_dir == str(tmp_path / "run")
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["metrics.csv"]
