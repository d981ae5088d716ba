"""The rows of speed and scale, next to another checkout: measured in turn, with a time limit."""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.timing import WITHOUT_CACHE

ROOT = Path(__file__).resolve().parents[3]
COMMAND = [sys.executable, str(ROOT / "benchmarks" / "rows.py"), "--repeats", "1"]


def cells(*arguments):
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=True)
    return [row.strip("| ").split(" | ") for row in done.stdout.splitlines()[2:]]


def test_both_checkouts_are_measured():
    (row,) = cells("--rows", "suite", "--earlier", str(ROOT))
    assert len(row) == 7
    assert all(float(cell.split()[0]) >= 0 for cell in row[1:5])
    assert row[5:] == ["–", "–"]  # no floor


def test_what_takes_too_long_is_cut_off():
    ((_, time, memory, floor, of),) = cells("--rows", "head", "--limit", "0.1")
    assert time == floor == "> 6"
    assert (memory, of) == ("–", "released formula")


def test_three_times_more_images_need_no_more_memory():
    """Holding the pixels of the further images would take more than the peak may grow by."""
    peaks = "(timing.peak(works.suite('quanproto', images=images)) for images in (32, 96))"
    environment = os.environ | WITHOUT_CACHE | {"PYTHONPATH": str(ROOT)}
    call = [sys.executable, "-c", f"from benchmarks import timing, works; print(*{peaks})"]
    few, many = map(float, subprocess.check_output(call, env=environment).split())
    assert many - few < (96 - 32) * 3 * 56**2 * 4 / 2**20
