"""The protocol test of every model with every explainer; one with other options meets every second model."""

from __future__ import annotations

import pytest

from tests.explanations import test_explainers as protocol
from tests.lightning_modules.registry import NETWORKS

CHECKS = [name for name in vars(protocol.TestProtocol) if name.startswith("test_")]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize(("row", "name"), enumerate(NETWORKS), ids=NETWORKS)
def test_every_explainer(row, name, check, monkeypatch):
    checked = 0
    for column, case in enumerate(protocol.CASES):
        if (row, column) not in protocol.PAIRS and (" " not in case[0] or (row + column) % 2 == 0):
            pair = protocol.pair_of(name, *case)
            if isinstance(pair, protocol.Pair):
                arguments = [monkeypatch] if "order" in check else []
                getattr(protocol.TestProtocol(), check)(pair, *arguments)
                monkeypatch.undo()
                checked += 1
    assert checked
