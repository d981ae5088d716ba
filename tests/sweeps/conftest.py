"""Fixtures of the tests of sweeps."""

from __future__ import annotations

import pytest

from protometry.scripts import train


@pytest.fixture(autouse=True)
def only_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps only train: the parsers of other commands would take a third of the time."""
    for name in train.COMMANDS.keys() - {"fit"}:
        monkeypatch.delitem(train.COMMANDS, name)
