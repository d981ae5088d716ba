import csv
import json
import logging
import os
import struct
from collections import namedtuple

import pytest
import torch
import wandb
from jsonargparse import ArgumentParser
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset
from wandb.proto import wandb_internal_pb2

from callbacks.run import loggers
from callbacks.run.loggers import MetricsFile, RunCSVLogger, RunWandbLogger, log_images

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
    table = MetricsFile(path, 0)
    for metrics, step in (({"b": 1.5, "epoch": 0}, 0), ({"a": torch.tensor(2)}, 1), ({"b": float("nan")}, 2)):
        table.log_metrics(metrics, step)
        table.save()
    assert path.read_text() == "step,epoch,a,b\n0,0,,1.5\n1,,2,\n2,,,nan\n"
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.csv"]


def test_every_saved_row_is_on_disk_as_a_whole_line(tmp_path):
    table = MetricsFile(tmp_path / "metrics.csv", 0)
    for step in range(5):
        table.log_metrics({"loss": step / 2}, step)
        table.save()
        assert [row["step"] for row in rows(table.path)] == [str(i) for i in range(step + 1)]


def test_resume_drops_a_line_cut_off_by_a_crash(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("step,loss\n0,0.5\n9,0.25\n1")  # the last row was meant to be 10,0.125
    table = MetricsFile(path, resume_step=10)
    table.log_metrics({"loss": 0.125}, 10)
    table.save()
    assert path.read_text() == "step,loss\n0,0.5\n9,0.25\n10,0.125\n"


def test_a_failing_rewrite_leaves_the_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "metrics.csv"
    table = MetricsFile(path, 0)
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
    MetricsFile(path, resume_step=1)
    assert [file.name for file in tmp_path.iterdir()] == ["metrics.csv"]


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


def test_epoch_rows_are_written_however_rarely_steps_are_logged(tmp_path):
    logger = RunCSVLogger(str(tmp_path))
    logger.log_metrics({"train/loss": 0.5, "epoch": 0}, step=2)
    assert rows(tmp_path / "metrics.csv") == [{"step": "2", "epoch": "0", "train/loss": "0.5"}]


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


@pytest.mark.parametrize("kind", [RunCSVLogger, RunWandbLogger])
def test_loggers_need_a_folder(kind):
    with pytest.raises(ValueError, match="`save_dir` to be the run folder, but got None"):
        kind()


@pytest.mark.parametrize("kind", ["RunCSVLogger", "RunWandbLogger"])
def test_loggers_are_built_from_plain_data(tmp_path, kind):
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--logger", type=list[Logger])
    config = parser.parse_args([f"--logger+=callbacks.{kind}", f"--logger.save_dir={tmp_path}"])
    (logger,) = parser.instantiate(config).logger
    assert str(logger.save_dir) == str(tmp_path)
    assert not list(tmp_path.iterdir())


# -- Weights & Biases -------------------------------------------------------------------------------------------------
@pytest.fixture
def offline(tmp_path, monkeypatch):
    """No credentials, no network, an empty home."""
    for name in ("WANDB_API_KEY", "NETRC", "WANDB_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "to be restored")
    monkeypatch.delenv("WANDB_ERROR_REPORTING")
    wandb.teardown()
    yield tmp_path / "run"
    wandb.teardown()


def records(path):
    """All records of a W&B file: a 7-byte head, then LevelDB's log format in blocks of 32 KiB."""
    data = path.read_bytes()
    position, message, found = 7, b"", []
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        message += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            found.append(wandb_internal_pb2.Record.FromString(message))
            message = b""
    return found


Segment = namedtuple("Segment", "folder run history metrics config summary")


def segments(folder):
    """What each offline segment holds, in order of time."""
    wandb.teardown()  # W&B's own process writes the last records after the run is finished
    found = []
    for path in sorted((folder / "wandb").glob("offline-run-*/*.wandb")):
        every = records(path)
        (run,) = [r.run for r in every if r.WhichOneof("record_type") == "run"]
        history = [
            {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in r.history.item}
            for r in every
            if r.WhichOneof("record_type") == "history"
        ]
        metrics = {r.metric.name or r.metric.glob_name: r.metric for r in every if r.HasField("metric")}
        config = {u.key: json.loads(u.value_json) for r in every for u in r.config.update}
        summary = {"/".join(u.nested_key) or u.key: json.loads(u.value_json) for r in every for u in r.summary.update}
        found.append(Segment(path.parent, run, history, metrics, config, summary))
    return found


def test_resumed_run_continues_the_same_offline_run(offline, caplog):
    first = RunWandbLogger(str(offline), project="birds")
    identity = first.run_id
    first.log_hyperparams(
        {"_class_path": "lightning_modules.ProtoPNet", "model": {"phases": {"warm": None}, "k": (1, 2)}}
    )
    first.define_results({"val/general/accuracy": True, "val/complexity/size": False, "val/open": None})
    for step in range(3):
        first.log_metrics({"val/general/accuracy": 0.25 * step, "phase": 0}, step)
    red = Image.new("RGB", (4, 4), "#ff0000")
    log_images([first], "media/prototypes", [red, red], ["prototype 0", "prototype 1"], step=2)
    with caplog.at_level(logging.INFO):
        first.finalize("failed")
        first.finalize("success")
    hints = [record.getMessage() for record in caplog.records if "wandb sync" in record.getMessage()]
    assert hints == [f"W&B was offline. Upload the run with: wandb sync {offline / 'wandb'}"]

    second = RunWandbLogger(str(offline), project="birds", run_id=identity)
    for step in range(3, 5):
        second.log_metrics({"val/general/accuracy": 0.25 * step, "phase": 1}, step)
    second.finalize("success")

    old, new = segments(offline)
    assert {old.run.run_id, new.run.run_id, second.run_id, second.version} == {identity}
    assert old.run.project == new.run.project == "birds"
    assert old.run.resume
    assert new.run.resume
    steps = [row["trainer/global_step"] for row in old.history + new.history if "phase" in row]
    assert steps == [0, 1, 2, 3, 4]
    assert [row["val/general/accuracy"] for row in new.history] == [0.75, 1.0]
    assert old.config["_class_path"] == "lightning_modules.ProtoPNet"
    assert old.config["model"] == {"phases": {"warm": None}, "k": [1, 2]}
    assert old.metrics["*"].step_metric == "trainer/global_step"
    accuracy, size = old.metrics["val/general/accuracy"], old.metrics["val/complexity/size"]
    assert accuracy.step_metric == size.step_metric == "trainer/global_step"
    assert (accuracy.summary.max, accuracy.summary.min) == (True, False)
    assert (size.summary.max, size.summary.min) == (False, True)
    assert not old.metrics["val/open"].HasField("summary")
    assert old.summary["val/general/accuracy"] == {"max": 0.5}
    (media,) = [row for row in old.history if "media/prototypes/captions" in row]
    assert media["media/prototypes/captions"] == ["prototype 0", "prototype 1"]
    assert media["trainer/global_step"] == 2
    for name in media["media/prototypes/filenames"]:
        assert Image.open(old.folder / "files" / name).getpixel((0, 0)) == (255, 0, 0)


def test_later_rows_of_one_logger_continue_the_closed_run(offline):
    logger = RunWandbLogger(str(offline), run_id="abc")
    for step in range(2):
        logger.log_metrics({"test/accuracy": 1.0}, step)
        logger.finalize("success")
    assert [segment.run.run_id for segment in segments(offline)] == ["abc", "abc"]
    assert wandb.run is None
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"


def test_ids_are_drawn_once_and_differ(tmp_path):
    one, other = RunWandbLogger(str(tmp_path)), RunWandbLogger(str(tmp_path))
    assert one.run_id == one.run_id == one.version
    assert one.run_id != other.run_id
    assert not list(tmp_path.iterdir())


def test_only_rank_zero_starts_a_run(offline, monkeypatch):
    monkeypatch.setattr(loggers.rank_zero_only, "rank", 1)
    for logger in (RunWandbLogger(str(offline)), RunCSVLogger(str(offline))):
        logger.log_metrics({"loss": 1.0}, 0)
        logger.experiment.anything()
        logger.finalize("success")
    log_images([RunWandbLogger(str(offline))], "media/x", [Image.new("RGB", (2, 2))], ["x"], 0)
    assert not offline.exists()


@pytest.mark.parametrize(
    ("variables", "netrc", "mode"),
    [
        ({}, "", "offline"),
        ({"WANDB_API_KEY": "a" * 40}, "", "online"),
        ({}, "machine api.wandb.ai login user password " + "a" * 40, "online"),
        ({"WANDB_API_KEY": "a" * 40, "WANDB_MODE": "offline"}, "", "offline"),
        ({"WANDB_MODE": "disabled"}, "", "disabled"),
        ({"WANDB_API_KEY": "a" * 40, "WANDB_MODE": "online"}, "", "online"),
    ],
)
def test_mode_follows_the_credentials_and_the_environment(offline, monkeypatch, variables, netrc, mode):
    monkeypatch.delenv("WANDB_MODE")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (offline.parent / "home" / ".netrc").write_text(netrc)
    wandb.teardown()
    assert loggers._wandb_mode() == mode


def test_online_without_credentials_is_an_error_and_no_prompt(offline, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "online")
    wandb.teardown()
    with pytest.raises(ValueError, match="Expected WANDB_MODE=online to come with credentials, but got none"):
        _ = RunWandbLogger(str(offline)).experiment


# -- images -----------------------------------------------------------------------------------------------------------
class FakeTensorBoard(TensorBoardLogger):
    def __init__(self):
        self.images = {}

    @property
    def experiment(self):
        return self

    def add_image(self, tag, array, step, dataformats):
        self.images[tag] = (array.shape, step, dataformats)


def test_images_reach_the_loggers_that_take_them(tmp_path, caplog):
    loggers._say_skipped.cache_clear()
    board, table = FakeTensorBoard(), RunCSVLogger(str(tmp_path))
    images = [Image.new("RGB", (6, 4)), Image.new("RGB", (2, 2))]
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            log_images([table, board], "media/prototypes", images, ["a", "b"], step=7)
    assert board.images == {
        "media/prototypes/000": ((4, 6, 3), 7, "HWC"),
        "media/prototypes/001": ((2, 2, 3), 7, "HWC"),
    }
    messages = [record.getMessage() for record in caplog.records]
    assert messages.count("RunCSVLogger takes no images; they are in the run folder.") == 1


def test_images_need_captions():
    with pytest.raises(ValueError, match=r"`captions` to hold one text per image \(1\), but got 0"):
        log_images([], "media/x", [Image.new("RGB", (2, 2))], [], 0)
