"""Which samples a process sees, and in what order: exact in evaluation, resumable in training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from typing import Any, cast

import torch
from torch.utils.data import Dataset, DistributedSampler


class ExactSampler(DistributedSampler[Any]):
    """Evaluation order: rank r sees samples r, r + W, r + 2W, ... without padding or dropping.

    Lightning leaves a ``DistributedSampler`` alone, and the one it would inject counts some samples twice.

    Args:
        dataset: the data set.
        rank: this process.
        world_size: number of processes W.

    Raises:
        ValueError: if there are fewer samples than processes, which would leave a process without a batch.

    Example:
        >>> [list(ExactSampler(range(5), rank, 2)) for rank in (0, 1)]
        [[0, 2, 4], [1, 3]]
    """

    def __init__(self, dataset: Sized, rank: int = 0, world_size: int = 1) -> None:
        if len(dataset) < world_size:
            raise ValueError(
                f"Expected the data set to have at least one sample per process, but got {len(dataset)} samples for "
                f"{world_size} processes. Lower `--trainer.devices`."
            )
        super().__init__(cast("Dataset[Any]", dataset), world_size, rank, shuffle=False)
        self._length = len(dataset)

    def __len__(self) -> int:
        return len(range(self.rank, self._length, self.num_replicas))

    def __iter__(self) -> Iterator[Any]:
        return iter(range(self.rank, self._length, self.num_replicas))


class EpochSampler(DistributedSampler[Any]):
    """Training order: a permutation drawn from (seed, epoch), shared by all ranks, yielding ``(epoch, index)``.

    The epoch is asked for when iteration starts, because Lightning's ``set_epoch`` comes too late after a resume. The
    permutation is padded with its own first entries so that every rank has equally many batches.

    Args:
        dataset: the data set.
        epoch: called at the start of each pass.
        seed: seed of the run.
        rank: this process.
        world_size: number of processes.

    Example:
        >>> first = list(EpochSampler(range(4), lambda: 3, seed=0))
        >>> sorted(first)
        [(3, 0), (3, 1), (3, 2), (3, 3)]
        >>> first == list(EpochSampler(range(4), lambda: 3, seed=0))
        True
    """

    def __init__(
        self, dataset: Sized, epoch: Callable[[], int], seed: int = 0, rank: int = 0, world_size: int = 1
    ) -> None:
        super().__init__(cast("Dataset[Any]", dataset), world_size, rank, shuffle=True, seed=seed)
        self._length = len(dataset)
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        epoch = self._epoch()
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + epoch) % 2**63)
        order = torch.randperm(self._length, generator=generator)
        padded = order[torch.arange(self.total_size) % self._length]
        return iter([(epoch, index) for index in padded[self.rank :: self.num_replicas].tolist()])
