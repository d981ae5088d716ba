"""Weights & Biases: one run over resumptions, offline without credentials, and its id in checkpoints."""

import logging
import os
import sys
import time
import warnings

import pytest
import wandb
from PIL import Image

from protometry.callbacks.run.csv_logger import RunCSVLogger
from protometry.callbacks.run.loggers import log_images
from protometry.callbacks.run.wandb_logger import RunWandbLogger, store_run, stored_run, wandb_mode, why_no_wandb
from tests.wandb_files import records, segments


def test_resumed_run_continues_the_same_offline_run(offline, caplog):
    first = RunWandbLogger(str(offline), project="birds")
    identity = first.run_id
    first.log_hyperparams(
        {"_class_path": "protometry.lightning_modules.ProtoPNet", "model": {"phases": {"warm": None}, "k": (1, 2)}}
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
    assert old.config["_class_path"] == "protometry.lightning_modules.ProtoPNet"
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


@pytest.mark.parametrize(("name", "value"), [("WANDB_API_KEY", "short"), ("WANDB_MODE", "nonsense")])
def test_settings_that_wandb_refuses_end_logging_there(offline, monkeypatch, name, value):
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv(name, value)
    wandb.teardown()
    logger = RunWandbLogger(str(offline))
    with pytest.warns(UserWarning, match="W&B failed"):
        logger.log_metrics({}, 0)
    assert logger.failed


def test_a_checkpoint_knows_the_run(tmp_path):
    checkpoint, logger = {}, RunWandbLogger(str(tmp_path), run_id="abc", best={"val/a": 0.5})
    store_run([RunCSVLogger(str(tmp_path)), logger], checkpoint)
    assert checkpoint["logger_run_ids"] == {"RunWandbLogger": "abc"}
    assert stored_run(checkpoint) == {"run_id": "abc", "best": {"val/a": 0.5}}
    assert stored_run({}) == {"run_id": None, "best": None}


# -- a W&B that does not work -----------------------------------------------------------------------------------------


def test_a_service_that_cannot_start_ends_logging_there_with_one_warning(offline, monkeypatch):
    def broken(**_):
        raise RuntimeError("the service\ndied")

    monkeypatch.setattr(wandb, "init", broken)
    logger = RunWandbLogger(str(offline))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(2):
            logger.log_hyperparams({"a": 1})
            logger.define_results({"val/a": True})
            logger.log_metrics({"val/a": 0.5}, step)
            logger.sum_up({"val/a": 0.5})
            log_images([logger], "media/x", [Image.new("RGB", (2, 2))], ["x"], step)
        logger.finalize("success")
    assert [str(one.message)[:47] for one in caught] == ["W&B failed (RuntimeError: the service died): no"]


@pytest.mark.parametrize("part", ["service", "folder of pictures"])
def test_what_breaks_later_ends_logging_there(offline, monkeypatch, part):
    logger, picture = RunWandbLogger(str(offline)), Image.new("RGB", (2, 2))
    logger.log_metrics({"a": 1.0}, 0)
    broken = (type(wandb.run), "log") if part == "service" else (wandb, "Image")
    monkeypatch.setattr(*broken, lambda *_, **__: (_ for _ in ()).throw(BrokenPipeError("gone")))
    with pytest.warns(UserWarning, match=r"W&B failed \(BrokenPipeError: gone\)"):
        log_images([logger], "media/x", [picture], ["x"], 1)
    log_images([logger], "media/x", [picture], ["x"], 2)
    assert logger.failed
    wandb.run.finish()


def test_a_row_is_in_the_file_while_the_run_goes_on(offline):
    logger = RunWandbLogger(str(offline))
    logger.log_metrics({"a": 1.0}, 0)
    (path,) = offline.glob("wandb/offline-run-*/*.wandb")
    until = time.monotonic() + 10
    while not (rows := [r for r in records(path) if r.WhichOneof("record_type") == "history"]):
        assert time.monotonic() < until
        time.sleep(0.02)
    assert len(rows) == 1
    logger.finalize("success")


def test_a_package_that_cannot_be_imported_says_why(monkeypatch):
    assert why_no_wandb() is None
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert why_no_wandb().startswith("ModuleNotFoundError: import of wandb halted")
