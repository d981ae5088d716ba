"""The benchmark of a GPU refuses where there is none; its tables, tried out on the CPU, and what it counts."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from benchmarks import gpu

SMALL = ["--device", "cpu", "--backbone", "sketch", "--pixels", "32", "--batch", "2", "--images", "4", "--steps", "1"]


def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="Expected a CUDA device, but torch finds none"):
        gpu.main([])


def test_launches_waits_and_kernels_are_told_apart(monkeypatch):
    def event(name, microseconds=0, card="CPU"):
        kind = getattr(torch.autograd.DeviceType, card)
        return SimpleNamespace(name=name, device_type=kind, time_range=SimpleNamespace(elapsed_us=lambda: microseconds))

    events = [event("cudaLaunchKernel"), event("cuLaunchKernelEx"), event("cudaMemcpyAsync"), event("aten::add", 9)]
    events += [event("cudaStreamSynchronize", 7), event("gemm", 1500, "CUDA"), event("Memcpy DtoH", 500, "CUDA")]

    monkeypatch.setattr(gpu, "profile", lambda **options: nullcontext(SimpleNamespace(events=lambda: events)))
    assert gpu.counted(lambda: None) == {"ms": 2.0, "launches": 2, "waits": 1}


@pytest.mark.slow
def test_the_tables_are_printed(monkeypatch, capsys):
    monkeypatch.setattr(torch, "compile", lambda module: module)
    monkeypatch.setattr(gpu, "shared", lambda arguments, count: "0")
    gpu.main([*SMALL, "--repeats", "1", "--tables", "suites", "others", "--suites", "general"])
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows[:2]] == ["suite", "general"]
    rates = [*rows[1][1:5], *(row[1] for row in rows[3:-2])]
    assert all(float(rate.replace(",", "")) > 0 for rate in rates)
