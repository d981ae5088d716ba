"""The logger that writes to TensorBoard from the run folder and continues its curves after a resume."""

from __future__ import annotations

from lightning.pytorch.loggers import TensorBoardLogger

from protometry.run_folder.command_line.messages import requires
from protometry.run_folder.folder import given_folder


class RunTensorBoardLogger(TensorBoardLogger):
    """Writes ``<save_dir>/tensorboard``; needs the extra ``tensorboard``.

    Args:
        save_dir: the run folder; the command line fills it in.
        resume_step: the checkpoint's ``global_step`` if the run is resumed: TensorBoard hides what the interrupted run
            wrote from there on, which is repeated. None for a fresh run.

    Raises:
        ValueError: without a folder or without the package.
    """

    def __init__(self, save_dir: str | None = None, resume_step: int | None = None) -> None:
        try:
            super().__init__(given_folder(save_dir), name="tensorboard", version="", purge_step=resume_step)
        except ModuleNotFoundError as error:
            raise ValueError(requires("tensorboard", "tensorboard")) from error
