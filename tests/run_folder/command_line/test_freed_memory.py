"""Freed memory is kept for the next tensor, unless the environment decides."""

import os
from types import SimpleNamespace

import pytest

from protometry.run_folder.command_line.freed_memory import keep_freed_memory

MMAP_THRESHOLD, TRIM_THRESHOLD = -3, -1  # of malloc.h


@pytest.mark.parametrize(("most", "expected"), [(2**31, True), (2**25, True), (0, False)], ids=["new", "old", "none"])
def test_an_old_glibc_is_asked_for_less(most, expected, monkeypatch):
    def mallopt(parameter, value):
        accepted = parameter != MMAP_THRESHOLD or value <= most
        chosen.update({parameter: value} if accepted else {})
        return int(accepted)

    chosen = {}
    monkeypatch.setattr("ctypes.CDLL", lambda _: SimpleNamespace(mallopt=mallopt))
    for name in [name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_"))]:
        monkeypatch.delenv(name)
    assert keep_freed_memory() is expected
    assert chosen == ({MMAP_THRESHOLD: min(most, 2**30), TRIM_THRESHOLD: 2**30} if expected else {})


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_the_environment_decides(name, monkeypatch):
    monkeypatch.setenv(name, "glibc.malloc.trim_threshold=1" if name == "GLIBC_TUNABLES" else "1")
    assert not keep_freed_memory()
