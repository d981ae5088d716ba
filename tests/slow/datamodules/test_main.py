"""``protometry datamodules`` in a process of its own."""

import subprocess
import sys

from tests.tiny_runs import ROOT


def test_as_a_process(tmp_path):
    command = [sys.executable, "-m", "protometry", "datamodules", "check", "--data=Cub200", f"--data.root={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2
    assert "to hold CUB_200_2011/images.txt" in done.stderr
    assert "Traceback" not in done.stderr
