"""Memory that one training step frees and the next requests again."""

from __future__ import annotations

import ctypes
import os

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # parameters of mallopt in glibc
_LARGEST = 2**30  # bytes of a tensor, and of free memory, that go back to the system at once only beyond this
_LARGEST_OF_OLD = 2**25  # the most that older versions of glibc take as the bytes of a tensor


def keep_freed_memory() -> bool:
    """Let the process keep freed memory of the host for its next tensors.

    By default, glibc returns large tensors to the system when they are freed, and the system clears every page again
    for the next ones, which takes up to a sixth of a training step on a CPU. Settings in the environment take
    precedence.

    Returns:
        Whether memory is kept; False if the environment decides, or on a system without glibc.
    """
    if "GLIBC_TUNABLES" in os.environ or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    choose = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is None:
        return False
    kept = choose(_MMAP_THRESHOLD, _LARGEST) or choose(_MMAP_THRESHOLD, _LARGEST_OF_OLD)
    return bool(kept and choose(_TRIM_THRESHOLD, _LARGEST))
