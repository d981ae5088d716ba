"""Loggers of any kind: their folder, their place after a resume, rank zero, and images."""

import logging

import pytest
from jsonargparse import ArgumentParser, Namespace
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from protometry.callbacks import RunCSVLogger, RunTensorBoardLogger, RunWandbLogger
from protometry.callbacks.run.loggers import log_images, log_table, place_loggers, say_images_skipped

NAMES = ("RunCSVLogger", "RunWandbLogger")
CHECKPOINT = {
    "global_step": 12,
    "logger_run_ids": {"RunWandbLogger": "abc"},
    "logger_best_values": {"RunWandbLogger": {"val/a": 0.5}},
}


def logger(**arguments):
    return Namespace(class_path="x", init_args=Namespace(**arguments))


def test_loggers_learn_their_folder_and_place(tmp_path):
    table = logger(save_dir=None, resume_step=None)
    wandb = logger(save_dir=None, run_id=None, best=None, name=None, project="mine")
    place_loggers([table, wandb], tmp_path, "cub/first", CHECKPOINT)
    assert table.init_args.as_dict() == {"save_dir": str(tmp_path), "resume_step": 12}
    learnt = {"save_dir": str(tmp_path), "run_id": "abc", "best": {"val/a": 0.5}, "name": "cub/first"}
    assert wandb.init_args.as_dict() == learnt | {"project": "mine"}


def test_a_single_logger_a_fresh_run_what_the_user_says_and_no_loggers(tmp_path):
    table, own = logger(save_dir=None, resume_step=None), logger(save_dir="mine", version=None)
    place_loggers(table, tmp_path, "x", {})
    assert table.init_args.as_dict() == {"save_dir": str(tmp_path), "resume_step": None}
    place_loggers([own], tmp_path, "x", CHECKPOINT)
    assert own.init_args.as_dict() == {"save_dir": "mine", "version": None}
    for nothing in (None, True, False, []):
        assert place_loggers(nothing, tmp_path, "x", CHECKPOINT) is nothing


@pytest.mark.parametrize("kind", [RunCSVLogger, RunTensorBoardLogger, RunWandbLogger])
def test_loggers_need_a_folder(kind):
    with pytest.raises(ValueError, match="`save_dir` to be the run folder, but got None"):
        kind()


@pytest.mark.parametrize("kind", [*NAMES, "RunTensorBoardLogger"])
def test_loggers_are_built_from_plain_data(tmp_path, kind):
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--logger", type=list[Logger])
    config = parser.parse_args([f"--logger+={kind}", f"--logger.save_dir={tmp_path}"])
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
class Silent(Logger):
    """A logger of another kind, which takes no images."""

    name = version = None

    def log_metrics(self, metrics, step=None): ...

    def log_hyperparams(self, params): ...


def events(folder):
    result = EventAccumulator(str(folder / "tensorboard"), size_guidance={"images": 0, "scalars": 0, "tensors": 0})
    return result.Reload()


def test_images_and_tables_reach_the_loggers_that_take_them(tmp_path, caplog):
    say_images_skipped.cache_clear()
    board, table = RunTensorBoardLogger(str(tmp_path)), RunCSVLogger(str(tmp_path))
    images = [Image.new("RGB", (6, 4)), Image.new("RGB", (2, 2))]
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            log_images([table, board, Silent()], "media/prototypes", images, ["a", "b"], step=7)
    rows = [["a|b", 0.123456, None], ["<i>", 2, "x"]]
    log_table([table, board], "tables/x", ["name", "value", "text"], rows, step=7)
    board.finalize("success")
    result = events(tmp_path)
    assert result.Tags()["images"] == ["media/prototypes/000", "media/prototypes/001"]
    assert [(i.width, i.height, i.step) for i in result.Images("media/prototypes/000")] == [(6, 4, 7)] * 2
    (text,) = result.Tensors("tables/x/text_summary")
    assert text.tensor_proto.string_val[0].decode().splitlines() == [
        "| name | value | text |", "| --- | --- | --- |", "| a\\|b | 0.1235 |  |", "| &lt;i> | 2 | x |",
    ]  # fmt: skip
    messages = [record.getMessage() for record in caplog.records]
    assert messages.count("Silent takes no images; they are in the run folder.") == 1


def test_tensorboard_hides_what_a_resumed_run_repeats(tmp_path):
    first = RunTensorBoardLogger(str(tmp_path))
    for step in range(4):
        first.log_metrics({"loss": float(step)}, step)
    first.finalize("failed")
    second = RunTensorBoardLogger(str(tmp_path), resume_step=2)
    for step in range(2, 5):
        second.log_metrics({"loss": 10.0 + step}, step)
    second.finalize("success")
    assert [(e.step, e.value) for e in events(tmp_path).Scalars("loss")] == [(0, 0), (1, 1), (2, 12), (3, 13), (4, 14)]


def test_without_the_package_tensorboard_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr("lightning.fabric.loggers.tensorboard._TENSORBOARD_AVAILABLE", False)
    monkeypatch.setattr("lightning.fabric.loggers.tensorboard._TENSORBOARDX_AVAILABLE", False)
    with pytest.raises(ValueError, match=r"tensorboard to be installed: `pip install \"protometry\[tensorboard\]\"`"):
        RunTensorBoardLogger(str(tmp_path))


def test_without_wandb_a_run_keeps_its_other_loggers(tmp_path, monkeypatch):
    monkeypatch.setattr("protometry.callbacks.run.loggers.why_no_wandb", lambda: "ImportError: protobuf")
    table, online = (
        Namespace(class_path=f"protometry.callbacks.{name}", init_args=Namespace(save_dir=None)) for name in NAMES
    )
    with pytest.warns(UserWarning, match=r"wandb cannot be used \(ImportError: protobuf\): .* without W&B"):
        assert place_loggers([table, online], tmp_path, "x", {}) == [table]
    with pytest.warns(UserWarning, match="without W&B"):
        assert place_loggers(online, tmp_path, "x", {}) is False
    assert place_loggers(table, tmp_path, "x", {}) is table


def test_images_need_captions():
    with pytest.raises(ValueError, match=r"`captions` to hold one text per image \(1\), but got 0"):
        log_images([], "media/x", [Image.new("RGB", (2, 2))], [], 0)
