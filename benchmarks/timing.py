"""How benchmarks measure: CPU time, the time of a device, and the peak memory of one work."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
WITHOUT_CACHE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}  # freed memory goes back at once


def cpu_ms(work: Callable[[], object]) -> float:
    """CPU milliseconds."""
    begin = time.process_time()
    work()
    return (time.process_time() - begin) * 1e3


def clock(device: torch.device | str) -> float:
    """Seconds of the wall clock, read when the device has finished all its work."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def show(times: Sequence[float], images: int) -> str:
    """Median, least and most milliseconds an image."""
    return f"{statistics.median(times) / images:.3g} ({min(times) / images:.3g} to {max(times) / images:.3g})"


def peak(work: Callable[[], object]) -> float:
    """MiB that a work holds at most, above what the process holds after it; done once before to warm up."""
    work()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _memory("VmRSS")
    work()
    return _memory("VmHWM") - before


def _memory(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024
