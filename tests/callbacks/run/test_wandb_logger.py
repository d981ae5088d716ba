"""Weights & Biases: one run over resumptions, offline without credentials, and its id in checkpoints."""

import json
import logging
import os
import struct
from collections import namedtuple

import pytest
import wandb
from PIL import Image
from wandb.proto import wandb_internal_pb2

from callbacks.run.csv_logger import RunCSVLogger
from callbacks.run.loggers import log_images
from callbacks.run.wandb_logger import RunWandbLogger, store_run, stored_run, wandb_mode


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
    for size in (0.5, 0.25, float("nan"), 0.75):
        first.sum_up({"val/complexity/size": size, "val/open": 3.0})
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
    assert old.metrics["val/general/accuracy"].step_metric == "trainer/global_step"
    assert old.metrics["val/general/accuracy"].summary.none
    assert not old.metrics["val/open"].HasField("summary")
    assert "val/general/accuracy" not in old.summary  # no model in a form that may be selected had it
    assert old.summary["val/complexity/size"] == {"min": 0.25}
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
    assert wandb_mode() == mode


def test_online_without_credentials_is_an_error_and_no_prompt(offline, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "online")
    wandb.teardown()
    with pytest.raises(ValueError, match="Expected WANDB_MODE=online to come with credentials, but got none"):
        RunWandbLogger(str(offline)).log_metrics({}, 0)


def test_a_checkpoint_knows_the_run(tmp_path):
    checkpoint, logger = {}, RunWandbLogger(str(tmp_path), run_id="abc", best={"val/a": 0.5})
    store_run([RunCSVLogger(str(tmp_path)), logger], checkpoint)
    assert checkpoint["logger_run_ids"] == {"RunWandbLogger": "abc"}
    assert stored_run(checkpoint) == {"run_id": "abc", "best": {"val/a": 0.5}}
    assert stored_run({}) == {"run_id": None, "best": None}
