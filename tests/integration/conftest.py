"""Fixtures of the integration tests: one thread, private folders, and runs to look at or to continue."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.tiny_runs import StopError, fit, stop_at


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """As the processes that tests start; the number of threads decides the last bits of a sum."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing reads the user's cache or writes into the working directory."""
    monkeypatch.setenv("PROTOMETRY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setattr(sys, "argv", ["train.py"])  # LightningCLI warns about other arguments
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an uninterrupted run, for reading only."""
    folder = tmp_path_factory.mktemp("runs") / "straight"
    fit(folder, drawn=True)
    return folder


@pytest.fixture
def run_copy(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of the finished run to change."""
    return Path(shutil.copytree(finished_run, tmp_path / "runs" / "copy"))


@pytest.fixture(scope="session")
def evaluated_run(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the same run after the evaluation of its best checkpoint, for reading only."""
    folder = tmp_path_factory.mktemp("runs") / "evaluated"
    shutil.copytree(finished_run, folder)
    fit(folder, "--test_after_fit=true", "--ckpt_path", "last")
    return folder


@pytest.fixture
def evaluated_copy(evaluated_run: Path, tmp_path: Path) -> Path:
    """A copy of the evaluated run to change."""
    return Path(shutil.copytree(evaluated_run, tmp_path / "moved" / "run"))


@pytest.fixture(scope="session")
def stopped_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that crashed in the middle of its fourth epoch, for reading only."""
    folder = tmp_path_factory.mktemp("runs") / "stopped"
    with pytest.raises(StopError):
        fit(folder, *stop_at(14))
    return folder


@pytest.fixture
def stopped_copy(stopped_run: Path, tmp_path: Path) -> Path:
    """A copy of the crashed run to continue."""
    return Path(shutil.copytree(stopped_run, tmp_path / "runs" / "stopped"))
