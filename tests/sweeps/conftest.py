"""Fixtures of the tests of sweeps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tiny_runs import only_fit


@pytest.fixture(autouse=True)
def one_parser() -> Iterator[None]:
    """Sweeps only train."""
    with only_fit():
        yield
