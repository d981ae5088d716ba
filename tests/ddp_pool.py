"""Processes, started once per test session, that run functions together over gloo: two, or as many as a test asks for.

Use the fixture ``ddp_pool`` of ``tests/conftest.py``, which also marks the test ``ddp``::

    def rank_sum(rank, world_size, values):          # at module level, in any test file
        total = values[rank::world_size].sum()
        torch.distributed.all_reduce(total)
        return total

    def test_rank_sum(ddp_pool):
        first, second = ddp_pool.run(rank_sum, torch.arange(5.0))
        assert first == second == 10

The function is looked up by file and name, so a test module need not be importable in the processes; arguments and
results are pickled, so their classes must be (the packages' classes are). Assertions belong in the test: a function
returns what there is to check. An exception, a death or a silence of either process fails the test with its reason
and discards both processes; the next test starts fresh ones.
"""

from __future__ import annotations

import datetime
import importlib
import importlib.util
import inspect
import multiprocessing
import pickle
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

START_SECONDS = 240  # imports of torch and Lightning on a busy machine


class DdpPoolError(AssertionError):
    """A process of the pool raised, died or did not answer."""


class DdpPool:
    """Processes that share a gloo group; started by the first ``run``.

    Args:
        directory: where the processes meet.
        timeout: seconds a function may take, and every collective in it.
        world_size: number of processes.
    """

    def __init__(self, directory: Path, timeout: float = 300, world_size: int = 2) -> None:
        self.directory = directory
        self.timeout = timeout
        self.world_size = world_size
        self._starts = 0
        self._processes: list[BaseProcess] = []
        self._connections: list[Connection] = []

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        """Call ``function(rank, world_size, *args)`` in all processes.

        Args:
            function: defined at module level.
            args: anything that pickles.

        Returns:
            What the function returned, by rank.

        Raises:
            DdpPoolError: if a process raised, died or did not answer in time.
            ValueError: if ``function`` is not at module level.
        """
        name = function.__qualname__
        if "." in name or name == "<lambda>":
            raise ValueError(f"Expected argument `function` to be defined at module level, but got {name}.")
        task = pickle.dumps((inspect.getfile(function), function.__module__, name, args))
        if not self._processes:
            self._start()
        for rank, connection in enumerate(self._connections):
            try:
                connection.send_bytes(task)
            except OSError:
                self._fail(f"Process {rank} was dead before it could run {name}.")
        return self._collect(name, self.timeout)

    def close(self) -> None:
        """End all processes."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
        for connection in self._connections:
            connection.close()
        self._processes, self._connections = [], []

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")  # a fork of ours would inherit torch's threads and deadlock
        context.set_forkserver_preload(["lightning", "torchvision"])  # their imports take most of a start
        self._starts += 1
        rendezvous = self.directory / f"rendezvous{self._starts}"
        for rank in range(self.world_size):
            connection, remote = context.Pipe()
            process = context.Process(
                target=_serve,
                args=(rank, self.world_size, rendezvous.as_uri(), self.timeout, remote),
                daemon=True,
                name=f"ddp{rank}",
            )
            process.start()
            remote.close()
            self._processes.append(process)
            self._connections.append(connection)
        self._collect("its start", START_SECONDS)

    def _collect(self, name: str, timeout: float) -> list[Any]:
        deadline = time.monotonic() + timeout
        results: dict[int, Any] = {}
        while len(results) < self.world_size:
            pending = {c: rank for rank, c in enumerate(self._connections) if rank not in results}
            ready = wait(list(pending), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                self._fail(f"No answer within {timeout:g} s from process {sorted(pending.values())} running {name}.")
            for connection in ready:
                rank = pending[connection]
                try:
                    succeeded, answer = pickle.loads(connection.recv_bytes())
                except (EOFError, OSError):
                    self._processes[rank].join(5)
                    self._fail(f"Process {rank} died with exit code {self._processes[rank].exitcode} running {name}.")
                if not succeeded:
                    self._fail(f"Process {rank} raised while running {name}:\n{answer}")
                results[rank] = answer
        return [results[rank] for rank in range(self.world_size)]

    def _fail(self, message: str) -> None:
        self.close()
        raise DdpPoolError(message)


def _serve(rank: int, world_size: int, rendezvous: str, timeout: float, connection: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=rendezvous, rank=rank, world_size=world_size, timeout=datetime.timedelta(seconds=timeout)
    )
    connection.send_bytes(pickle.dumps((True, None)))
    while True:
        try:
            task = connection.recv_bytes()
        except EOFError:  # the session is over
            return
        try:
            path, module, name, args = pickle.loads(task)
            answer = (True, getattr(_load(path, module), name)(rank, world_size, *args))
            reply = pickle.dumps(answer)  # not connection.send: torch would pass file handles that die with us
        except Exception:
            reply = pickle.dumps((False, traceback.format_exc()))
        connection.send_bytes(reply)


def _load(path: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:  # pytest gave the module a name of its own
        spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"Expected a Python file at {path}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
