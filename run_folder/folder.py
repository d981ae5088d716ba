"""The run folder, and whether a run may start there: nothing of an earlier run is ever overwritten."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from lightning import LightningModule, Trainer
from lightning.pytorch.cli import SaveConfigCallback
from lightning.pytorch.utilities import rank_zero_info

from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.checkpoint_file import read_checkpoint
from protometry.run_folder.command_line.user_path import shown, user_path
from protometry.run_folder.free_folder import holds_a_run, last_of
from protometry.run_folder.layout import CONFIG, LAST, SPLIT, folder_of_run
from protometry.run_folder.settings import Effect, arguments_with, changed_arguments
from protometry.run_folder.slurm import states_of_queued

FILLED_IN = ("words",)  # arguments that a model reads from a file where they are null
LINKED_MODEL_ARGUMENTS = ("num_classes", "num_concepts", "image_size")  # facts of the data, checked there


class SaveConfig(SaveConfigCallback):
    """Writes ``config.yaml`` and ``split.json`` into the folder of a training run and sends the config to its loggers.

    The config is the requested one; values filled in by the command line (folders, the checkpoint to resume from)
    belong to one start of the run and are left out. Files are written after the first checkpoint: a run that is killed
    before leaves none, and starts again.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Nothing: others still check their settings."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the loggers on rank zero, once all settings have been checked; outside training, nothing is saved."""
        if trainer.is_global_zero:
            check_split(_split_record(trainer), _split_file(trainer))
            for logger in trainer.loggers:
                logger.log_hyperparams(json.loads(self.parser.dump(self.config, format="json")))
            if (Path(trainer.default_root_dir) / LAST).is_file():  # of a run that is resumed, perhaps after its end
                self.save_config(trainer, pl_module, "fit")

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the files of a fresh run in its first epoch."""
        if trainer.is_global_zero and not self.already_saved:
            self.save_config(trainer, pl_module, "fit")

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Write the files."""
        if (record := _split_record(trainer)) is not None:
            write_atomic(_split_file(trainer), _split_text(record))
        config = self.parser.dump(self.config, skip_none=False)
        write_atomic(Path(trainer.default_root_dir) / CONFIG, config)
        self.already_saved = True


def check_split(record: dict[str, Any] | None, path: Path) -> None:
    """Refuse to resume a run with another split.

    Args:
        record: the part of every image, or None for data without files.
        path: of ``split.json``.

    Raises:
        ValueError: if the data are split differently than when the run began.
    """
    if record is not None and path.exists() and path.read_text(encoding="utf-8") != _split_text(record):
        raise ValueError(
            f"Expected the split this run began with, but {shown(path)} differs from what the data gives now. "
            "Restore the data, or start another run with `--experiment NAME`."
        )


def _split_record(trainer: Trainer) -> dict[str, Any] | None:
    record: dict[str, Any] | None = cast(Any, trainer).datamodule.split_record()
    return record


def _split_text(record: dict[str, Any]) -> str:
    return json.dumps(record, indent=1) + "\n"


def _split_file(trainer: Trainer) -> Path:
    return Path(trainer.default_root_dir) / SPLIT


def given_folder(save_dir: str | None) -> str:
    """The folder of a logger; there is no default, which could contain another run.

    Args:
        save_dir: the run folder, which the command line fills in.

    Returns:
        The same, with the home folder for ``~``.

    Raises:
        ValueError: without a folder.
    """
    if not save_dir:
        raise ValueError(f"Expected argument `save_dir` to be the run folder, but got {save_dir!r}.")
    return str(user_path(save_dir))


def resume_path(folder: Path, ckpt_path: str | None) -> Path | None:
    """The checkpoint from which a run continues; a run requeued by a cluster needs no ``ckpt_path``.

    Args:
        folder: the run folder.
        ckpt_path: "last", a file, or None for a fresh run.

    Returns:
        The file, or None for a fresh run.

    Raises:
        FileNotFoundError: if "last" is requested and does not exist.
        ValueError: if a fresh run, or one that continues another, would overwrite an earlier run.
    """
    last = folder / LAST
    if ckpt_path == "last":
        return last_of(folder)
    if ckpt_path is not None and (belongs_to(folder, ckpt_path) or not last.exists()):
        return Path(ckpt_path)
    if ckpt_path is None and (states := states_of_queued(folder)):
        newest = max(states, key=lambda path: (read_checkpoint(path, mmap=True)["global_step"], path == last))
        rank_zero_info(f"The job was queued again: the training continues from {shown(newest)}, its newest checkpoint.")
        return newest
    if last.exists():
        raise ValueError(holds_a_run(folder, "Start") if _is_released(last) else holds_a_run(folder))
    return None


def _is_released(checkpoint: Path) -> bool:
    """Whether it holds weights that were trained elsewhere, from which no training continues."""
    try:
        return "released" in read_checkpoint(checkpoint, mmap=True)
    except ValueError:  # a damaged one, about which resuming says more
        return False


def belongs_to(folder: Path, ckpt_path: str | Path) -> bool:
    """Whether a checkpoint is one of the run in a folder, so that resuming from it continues that run."""
    return folder_of_run(Path(ckpt_path).resolve()) == folder.resolve()


def check_unchanged(path: Path, model: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Refuse to resume with hyper-parameters that differ from the checkpoint's.

    Args:
        path: the checkpoint.
        model: the requested class_path and init_args of the model.
        data: the same for the data module.

    Returns:
        The checkpoint.

    Raises:
        ValueError: naming every argument that differs, down to the keys of its mappings, with both values.
    """
    checkpoint = read_checkpoint(path, mmap=True)
    differing = []
    read = [name for name in FILLED_IN if model.get("init_args", {}).get(name) is None]
    for section, requested, stored, free in (
        ("model", model, checkpoint["hyper_parameters"], [*LINKED_MODEL_ARGUMENTS, *read]),
        ("data", data, checkpoint["datamodule_hyper_parameters"], arguments_with(data["class_path"], Effect.NONE)),
    ):
        if (theirs := stored.get("_class_path")) != (ours := requested["class_path"]):
            differing.append(f"{section}: {theirs} in the run, {ours} requested")
        differing += changed_arguments(section, stored, requested.get("init_args", {}), free)
    if differing:
        raise ValueError(
            f"Expected the settings that {shown(path)} was trained with, but got others. {'; '.join(differing)}. Use "
            "the `config.yaml` next to the checkpoint, or start another run with `--experiment NAME`."
        )
    return checkpoint
