"""What workers of a loader cannot do is told by the process that asked them, which never waits for ever."""

import re

import pytest
from torch.utils.data import _utils

from protometry.datamodules.dataset import Mapped
from protometry.datamodules.workers import WorkerLoader


class Unsendable:
    """Fails in the thread that sends batches, as tensors do without room for them."""

    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        raise self.error


def fails(error):
    raise error


NO_ROOM = RuntimeError("unable to allocate shared memory(shm) for file </torch_7>: No space left on device (28)")


@pytest.mark.parametrize(("make", "error", "said"), [
    (Unsendable, NO_ROOM, r"Expected room .* in /dev/shm, but it is full\. Pass `--data\.num_workers 0`"),
    (Unsendable, RuntimeError("Too many open files (24)"), r"Expected to open .* with `ulimit -n 4096`"),
    (fails, ValueError("Expected a photo,\nbut got a film."), r"^Expected a photo,\nbut got a film\.$"),
    (fails, PermissionError(13, "Permission denied", "x"), r"^\[Errno 13\] Permission denied: 'x'$"),
    (fails, KeyError("a mistake of ours"), r"Traceback"),
])  # fmt: skip
def test_a_failure_in_a_worker_reaches_the_main_process(make, error, said, monkeypatch):
    monkeypatch.setattr(_utils, "MP_STATUS_CHECK_INTERVAL", 0.5)  # seconds that torch waits for a worker to end
    loader = WorkerLoader(Mapped(make, [error]), batch_size=None, num_workers=1, timeout=20)
    with pytest.raises(type(error)) as raised:
        list(loader)
    assert re.search(said, str(raised.value))


def test_without_workers_an_error_stays_what_it_is():
    full = OSError(28, "No space left on device", "photos")
    with pytest.raises(OSError, match="photos") as raised:
        list(WorkerLoader(Mapped(fails, [full]), batch_size=None))
    assert raised.value is full
