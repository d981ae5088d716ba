"""Freed memory is kept for the next tensor, unless the environment decides."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, torch
from protometry.run_folder.command_line.freed_memory import keep_freed_memory
print(keep_freed_memory())
for _ in range(20):  # until freed pieces have joined
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    tensors = [torch.ones(2**22) for _ in range(4)]  # 64 MiB, 16,384 pages
    del tensors
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_later_tensors_have_the_pages_of_earlier_ones():
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=clean, capture_output=True, text=True, check=True)
    kept, first, *_, last = done.stdout.split()
    if kept == "False":
        pytest.skip("memory is not managed by glibc")
    assert int(last) * 10 < int(first)
