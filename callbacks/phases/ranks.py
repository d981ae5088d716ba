"""Agreement between the processes of a run on the parameters and buffers of its model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeVar, cast

import torch
from lightning import LightningModule, Trainer
from torch import distributed, nn

Result = TypeVar("Result")


def broadcast_buffers(module: nn.Module) -> None:
    """Give all processes the buffers of rank 0, which are the ones that are saved; BatchNorm's differ."""
    if distributed.is_initialized():
        for buffer in module.buffers():
            distributed.broadcast(buffer, src=0)


def solved_on_first(trainer: Trainer, module: nn.Module, solve: Callable[[], Result]) -> Result:
    """Let the first process change a model, and give all others its result, parameters and buffers.

    Raises:
        ValueError: on all processes, if ``solve`` refuses its input.
    """
    outcome: Result | ValueError | None = None
    if trainer.is_global_zero:
        try:
            outcome = solve()
        except ValueError as error:  # the other processes must not wait for ever
            outcome = error
    outcome = trainer.strategy.broadcast(outcome)
    if isinstance(outcome, ValueError):
        raise outcome
    broadcast_state(module)
    return cast(Result, outcome)


def broadcast_state(module: nn.Module) -> None:
    """Give all processes the parameters and buffers of rank 0."""
    if distributed.is_initialized():
        for tensor in (*module.parameters(), *module.buffers()):
            distributed.broadcast(tensor.detach(), src=0)


def state_hash(module: nn.Module) -> int:
    """A hash of all parameters and buffers, bit for bit."""
    digest = hashlib.sha256()
    for name, tensor in sorted([*module.named_parameters(), *module.named_buffers()]):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return int.from_bytes(digest.digest()[:8], "big") >> 1


def assert_equal_over_ranks(module: LightningModule, phase: str) -> None:
    """Stop a run whose processes hold different parameters or buffers.

    Raises:
        RuntimeError: on all processes, if the hash of one differs.
    """
    if not distributed.is_initialized():
        return
    own = torch.tensor(state_hash(module), device=module.device)
    hashes = [torch.zeros_like(own) for _ in range(distributed.get_world_size())]
    distributed.all_gather(hashes, own)
    if len({int(value) for value in hashes}) > 1:
        raise RuntimeError(f"The processes hold different parameters or buffers at the start of phase {phase!r}.")
