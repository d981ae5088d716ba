"""The benchmark of the evaluation runs, and counts the passes of a suite."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "evaluation.py"


@pytest.mark.slow
def test_the_table_is_printed():
    shape = ["--backbone", "sketch", "--pixels", "32", "--units", "20", "--images", "4", "--repeats", "1"]
    command = [sys.executable, str(SCRIPT), "--suites", "quanproto", *shape, "--threads", "1"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (row,) = [line for line in printed.splitlines() if line.startswith("| quanproto |")]
    assert [float(cell) for cell in row.split("|")[2:5]] == [1.0, 6.0, 10.0]
