"""Communication between the processes of one run; a single process does not communicate."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import Tensor, distributed

Share = TypeVar("Share")


def gathered(own: Share) -> list[Share]:
    """The shares of all processes, by rank.

    Args:
        own: the share of this process, which can be pickled.
    """
    if not distributed.is_initialized():
        return [own]
    shares: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(shares, own)
    return shares


def add_up(*own: Tensor) -> None:
    """Add to tensors, in place, the same tensors of all other processes.

    Args:
        own: of equal shapes on all processes, in the same order.
    """
    if distributed.is_initialized():
        for tensor in own:
            distributed.all_reduce(tensor)
