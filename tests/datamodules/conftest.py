"""Shared by the tests of data modules: the folder of real data and a private cache."""

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("caches")
    return (folder / str(number) for number in count())


@pytest.fixture(autouse=True)
def private_cache(caches: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has its own, empty cache folder."""
    cache = next(caches)
    cache.mkdir()
    monkeypatch.setenv("PROTOMETRY_CACHE", str(cache))
    return cache


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Path of a real data set by its folder name; skips the test where it is absent."""
    default = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    folder = Path(os.environ.get("PROTOMETRY_DATA", default))

    def find(name: str) -> Path:
        if not (folder / name).is_dir():
            pytest.skip(f"no {name} under {folder}: set PROTOMETRY_DATA to the folder with real data")
        return folder / name

    return find
