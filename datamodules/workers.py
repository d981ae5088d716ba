"""A loader whose worker processes fail like the process that asked them: with one error that says what to do.

A worker hands over batches in a thread of multiprocessing, which prints its errors and goes on, so that a full
``/dev/shm`` or too many open files would let the other side wait for ever.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.queues import Queue
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader

NO_ROOM = re.compile(r"shared memory.*No space left", re.DOTALL)
TOO_MANY_FILES = re.compile(r"Too many open files|received 0 items of ancdata")
NO_WORKERS = "`--data.num_workers 0`, which loads images without other processes"
_END = object()


class WorkerLoader(DataLoader[Any]):
    """A loader of torch whose workers tell this process what went wrong.

    Iterating raises what a worker raised, without the traceback that torch puts before an error for users, and
    RuntimeError where shared memory or open files do not suffice.
    """

    def __iter__(self) -> Any:  # Iterator; torch names its own iterator here
        if self.num_workers == 0:
            yield from super().__iter__()
            return
        with _in_words():
            batches = super().__iter__()
        while True:
            with _in_words():
                batch = next(batches, _END)
            if batch is _END:
                return
            yield batch

    def _get_iterator(self) -> Any:
        own = self.worker_init_fn  # Lightning's, which seeds
        self.worker_init_fn = partial(_begin, own)
        try:
            return super()._get_iterator()
        finally:
            self.worker_init_fn = own


def _begin(own: Callable[[int], None] | None, worker: int) -> None:
    """Begin a worker: what its queue cannot send becomes an error that it sends."""

    def tell(queue: Queue[Any], error: Exception, unsent: tuple[int, Any]) -> None:
        wrapped = ExceptionWrapper(where=f"in DataLoader worker process {worker}")  # type: ignore[no-untyped-call]
        queue.put((unsent[0], wrapped))

    Queue._on_queue_feeder_error = tell  # type: ignore[attr-defined]
    if own is not None:
        own(worker)


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # a worker may raise anything, which torch raises again here
        text = str(error)
        if NO_ROOM.search(text) or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
            raise RuntimeError(
                "Expected room for the batches of loader workers in /dev/shm, but it is full. Pass "
                f"{NO_WORKERS}, lower `--data.batch_size`, or enlarge it, such as with docker run --shm-size 2g."
            ) from error
        if TOO_MANY_FILES.search(text):
            raise RuntimeError(
                "Expected to open the files that loader workers share, but too many are open. Allow more, such as "
                f"with `ulimit -n 4096`, or pass {NO_WORKERS}."
            ) from error
        *traceback, said = re.split(rf"^[\w.]*{type(error).__name__}: ", text, flags=re.MULTILINE)
        if traceback and (said.startswith("Expected") or isinstance(error, OSError | MemoryError)):
            raise type(error)(said.strip()) from error
        raise
