"""Loggers of any kind: their folder, their place after a resume, rank zero, and images."""

import logging

import pytest
from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch.loggers import Logger, TensorBoardLogger
from lightning.pytorch.utilities import rank_zero_only
from PIL import Image

from callbacks import RunCSVLogger, RunWandbLogger
from callbacks.run.loggers import log_images, place_loggers, say_images_skipped

CHECKPOINT = {
    "global_step": 12,
    "logger_run_ids": {"RunWandbLogger": "abc"},
    "logger_best_values": {"RunWandbLogger": {"val/a": 0.5}},
}


def logger(**arguments):
    return Namespace(class_path="x", init_args=Namespace(**arguments))


def test_loggers_learn_their_folder_and_place(tmp_path):
    table, wandb = (
        logger(save_dir=None, resume_step=None),
        logger(save_dir=None, run_id=None, best=None, name=None, project="mine"),
    )
    place_loggers([table, wandb], tmp_path, "cub/first", CHECKPOINT)
    assert table.init_args.as_dict() == {"save_dir": str(tmp_path), "resume_step": 12}
    learnt = {"save_dir": str(tmp_path), "run_id": "abc", "best": {"val/a": 0.5}, "name": "cub/first"}
    assert wandb.init_args.as_dict() == learnt | {"project": "mine"}


def test_a_single_logger_and_a_fresh_run(tmp_path):
    table = logger(save_dir=None, resume_step=None)
    place_loggers(table, tmp_path, "x", {})
    assert table.init_args.as_dict() == {"save_dir": str(tmp_path), "resume_step": None}


def test_what_the_user_says_stays(tmp_path):
    table = logger(save_dir="mine", version=None)
    place_loggers([table], tmp_path, "x", CHECKPOINT)
    assert table.init_args.as_dict() == {"save_dir": "mine", "version": None}


@pytest.mark.parametrize("loggers", [None, True, False, []])
def test_no_loggers(loggers, tmp_path):
    place_loggers(loggers, tmp_path, "x", CHECKPOINT)


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


def test_only_rank_zero_starts_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    for logger in (RunWandbLogger(str(tmp_path / "run")), RunCSVLogger(str(tmp_path / "run"))):
        logger.log_metrics({"loss": 1.0}, 0)
        logger.experiment.anything()
        logger.finalize("success")
    log_images([RunWandbLogger(str(tmp_path / "run"))], "media/x", [Image.new("RGB", (2, 2))], ["x"], 0)
    assert not (tmp_path / "run").exists()


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
    say_images_skipped.cache_clear()
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
