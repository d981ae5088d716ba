"""The benchmark of the evaluation runs, and what it says of memory holds."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "evaluation.py"


def printed(*arguments):
    command = [sys.executable, str(SCRIPT), *arguments, "--threads", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.slow
def test_ten_times_more_images_need_no_more_memory():
    few, many = (float(printed("--tables", "peak", "--images", str(images))) for images in (64, 640))
    assert many < 1.05 * few


@pytest.mark.slow
def test_the_tables_are_printed():
    shape = ["--backbone", "sketch", "--pixels", "32", "--units", "20", "--images", "4", "--repeats", "1"]
    lines = printed("--tables", "floors", "communication", "--suites", "quanproto", *shape).splitlines()
    (row,) = [line for line in lines if line.startswith("| quanproto |")]
    assert [float(cell) for cell in row.split("|")[2:5]] == [1.0, 6.0, 10.0]
    assert "| 1 | 0 | 0 |" in lines
