"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

gc.disable()  # while modules are imported and tests collected, a third of whose time it would take

import pytest
import torch
import wandb

from tests.cub_tree import make_cub
from tests.ddp_pool import DdpPool
from tests.funnybirds_tree import make_funnybirds

SLOW = Path(__file__).parent / "slow"  # its tests are marked slow, and collected only where they are asked for

torch.set_num_threads(1)  # tests run side by side, one process per core
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup ignores, and commands then do not listen to


@pytest.fixture(scope="session")
def ddp_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DdpPool]:
    """Two processes over gloo, started at the first use; see ``tests/ddp_pool.py`` for how to use them."""
    pool = DdpPool(tmp_path_factory.mktemp("ddp_pool"))
    yield pool
    pool.close()


@pytest.fixture
def cub_tree(tmp_path: Path) -> Callable[..., Path]:
    """Writes a small CUB tree, see :func:`tests.cub_tree.make_cub`."""
    return lambda name="cub", **options: make_cub(tmp_path / name, **options)


@pytest.fixture
def funnybirds_tree(tmp_path: Path) -> Callable[..., Path]:
    """Writes a small FunnyBirds tree, see :func:`tests.funnybirds_tree.make_funnybirds`."""
    return lambda name="funnybirds", **options: make_funnybirds(tmp_path / name, **options)


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for a run of W&B without credentials, network and settings at home."""
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


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path == SLOW and "not slow" in config.getoption("markexpr") else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SLOW in item.path.parents:
            item.add_marker(pytest.mark.slow)
        if "ddp_pool" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.ddp)


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()  # modules and tests stay, and need not be looked at again
