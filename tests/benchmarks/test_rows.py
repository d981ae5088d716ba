"""The rows of speed and scale, next to another checkout: measured in turn, with a time limit."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, str(ROOT / "benchmarks" / "rows.py"), "--repeats", "1"]


def cells(*arguments):
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=True)
    return [row.strip("| ").split(" | ") for row in done.stdout.splitlines()[2:]]


@pytest.mark.slow
def test_both_checkouts_are_measured():
    (row,) = cells("--rows", "projection", "--earlier", str(ROOT))
    assert len(row) == 7
    assert all(float(cell.split()[0]) > 0 for cell in row[1:6])
    assert row[6] == "latent alone"


@pytest.mark.slow
def test_what_takes_too_long_is_cut_off():
    ((_, time, *rest),) = cells("--rows", "noise", "--limit", "0.5")
    assert time == "> 16"
    assert rest == ["–", "–", "–"]
