"""The base of all data sets, the loader of their batches, and exact and resumable samplers.

Tables are looked up for a whole batch at once. Images leave loader workers as uint8 pixels, a quarter of the memory,
and become float32 on the device of the trainer that requested the batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence, Sized
from itertools import chain
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, DistributedSampler, default_collate

from protometry.datamodules.plot import plot_sample
from protometry.datamodules.sample import Batch, Sample
from protometry.datamodules.workers import WorkerLoader
from protometry.run_folder.command_line.processes import gathered

CPU = torch.device("cpu")
Index = int | tuple[int, int]  # a position, or (epoch, position) where augmentation depends on the epoch


class ImageDataset(Dataset[Sample], ABC):
    """Samples indexed by position, or by ``(epoch, index)`` where augmentation depends on the epoch.

    A subclass defines ``batch``, or ``__getitem__`` if it has nothing to gain from several samples at once.

    Raises:
        TypeError: if a subclass overrides ``__getitem__`` where loaders would call an inherited ``batch``.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__getitem__" in vars(cls) and "batch" not in vars(cls) and cls.batch is not ImageDataset.batch:
            raise TypeError(
                f"Expected {cls.__name__} to override `batch`, which its base class and loaders call, but it "
                "overrides `__getitem__`."
            )

    @property
    @abstractmethod
    def sample_ids(self) -> list[str]:
        """The ids of all samples, in order."""

    @property
    def contents(self) -> list[str]:
        """What tells each sample from others, in order: its id, and what :class:`.PhotoDataset` knows of its file."""
        return self.sample_ids

    @property
    def labels(self) -> NDArray[np.int64]:
        """``(n,)`` the classes of all samples, in order; a subclass that knows them without making samples says so."""
        return np.array([int(self[index]["label"]) for index in range(len(self))], dtype=np.int64)

    @abstractmethod
    def __len__(self) -> int: ...

    def __getitem__(self, index: Index) -> Sample:
        """One sample."""
        if type(self).batch is ImageDataset.batch:
            raise NotImplementedError(f"Expected {type(self).__name__} to define `batch` or `__getitem__`.")
        batch: dict[str, Any] = dict(with_float_images(self.batch([index])))
        return cast("Sample", {name: values[0] for name, values in batch.items()})

    def batch(self, indices: Sequence[Index]) -> Batch:
        """Samples stacked; images may still be ``(B, H, W, 3)`` uint8 pixels."""
        return cast("Batch", default_collate([self[index] for index in indices]))

    def plot(self, sample: Sample) -> Image.Image:
        """A picture of a sample with its box, points, mask and label map."""
        return plot_sample(sample)


def epoch_and_position(index: Index) -> tuple[int, int]:
    """An index as (epoch, position); a bare position belongs to epoch 0."""
    return index if isinstance(index, tuple) else (0, index)


class _Batches(Dataset[Any]):
    """A data set that returns whole batches to the workers of a loader."""

    def __init__(self, dataset: ImageDataset) -> None:
        self.dataset = dataset

    @property
    def sample_ids(self) -> list[str]:
        return self.dataset.sample_ids

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Index) -> Sample:
        return self.dataset[index]

    def __getitems__(self, indices: Sequence[Index]) -> Batch:
        return self.dataset.batch(indices)


class Mapped(Dataset[Any]):
    """What a function makes of each of some items, in the workers of a loader."""

    def __init__(self, make: Callable[[Any], Any], items: Sequence[Any]) -> None:
        self.make, self.items = make, items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.make(self.items[index])


class ImageLoader(WorkerLoader):
    """Batches of an :class:`ImageDataset`, with float images or what was kept in their place.

    Args:
        device: where uint8 pixels become float images; other fields stay on the CPU.
        options: of :class:`torch.utils.data.DataLoader`.
    """

    def __init__(self, dataset: ImageDataset | _Batches, device: torch.device = CPU, **options: Any) -> None:
        whole = dataset if isinstance(dataset, _Batches) else _Batches(dataset)  # Lightning may build a loader again
        pinned = device.type == "cuda"  # copies then do not block
        super().__init__(whole, **{"pin_memory": pinned, **options, "collate_fn": _unchanged})
        self.device = device
        self.kept: dict[str, Any] | None = None  # all fields but the image, of all samples in order

    def __iter__(self) -> Any:  # Iterator[Batch]; torch names its own iterator here
        if self.kept is None:  # asked with the first batch: Lightning makes the iterator before an epoch starts
            for batch in super().__iter__():
                yield with_float_images(batch, self.device)
            return
        for indices in self.batch_sampler or ():
            rows = [epoch_and_position(index)[1] for index in indices]
            yield {name: _chosen(values, rows) for name, values in self.kept.items()}

    def keep(self, name: str, see: Callable[[Tensor], Tensor]) -> None:
        """Show every image once and hand out what was seen instead of images, until ``kept`` is None again.

        Args:
            name: of the field that takes the place of ``image``.
            see: of ``(B, 3, H, W)`` images something with B rows on the CPU; it always gets full batches, the last one
                filled with its last image, so that nothing depends on the number of processes.
        """
        sampler, size = cast("DistributedSampler[Any]", self.sampler), cast("int", self.batch_size)
        dataset, ranks = cast("_Batches", self.dataset), range(sampler.num_replicas)
        share = ExactSampler(dataset, sampler.rank, sampler.num_replicas)
        batches = []
        for batch in ImageLoader(dataset, self.device, batch_size=size, sampler=share, num_workers=self.num_workers):
            images = batch.pop("image")
            full = images[torch.arange(size).clamp(max=len(images) - 1)]
            batches.append(batch | {name: see(full)[: len(images)]})
        shares = gathered(batches) if len(ranks) > 1 else [batches]
        order = np.argsort([row for rank in ranks for row in range(rank, len(dataset), len(ranks))])
        self.kept = {field: _chosen(_joined(shares, field), order.tolist()) for field in shares[0][0]}


def _joined(shares: list[list[dict[str, Any]]], field: str) -> Any:
    """One field of all batches of all processes."""
    parts = [batch[field] for batches in shares for batch in batches]
    return torch.cat(parts) if isinstance(parts[0], Tensor) else list(chain.from_iterable(parts))


def _chosen(values: Any, rows: list[int]) -> Any:
    """Some rows of a field."""
    return values[rows] if isinstance(values, Tensor) else [values[row] for row in rows]


def _unchanged(batch: Batch) -> Batch:
    return batch


def image_tensor(pixels: Tensor) -> Tensor:
    """Pixels ``(..., H, W, 3)`` uint8 RGB as an image ``(..., 3, H, W)`` float32 in 0..1.

    Example:
        >>> image_tensor(torch.tensor([[[0, 51, 255]]], dtype=torch.uint8)).flatten().tolist()
        [0.0, 0.20000000298023224, 1.0]
    """
    channels_first = pixels.movedim(-1, -3)
    if pixels.device == CPU:  # in huge pages; memory of torch takes twice as long
        image = torch.from_numpy(np.empty(channels_first.shape, np.float32))
    else:
        image = torch.empty(channels_first.shape, device=pixels.device)
    return image.copy_(channels_first).div_(image.new_full((), 255))  # a GPU would multiply by a rounded 1 / 255


def with_float_images(batch: Batch, device: torch.device = CPU) -> Batch:
    """A batch whose images are float and on a device; those that are float already stay as and where they are.

    Example:
        >>> with_float_images({"image": torch.zeros(1, 2, 2, 3, dtype=torch.uint8)})["image"].shape
        torch.Size([1, 3, 2, 2])
    """
    fields: dict[str, Any] = dict(batch)
    for name in ("image", "second_view"):
        if name in fields and fields[name].dtype == torch.uint8:
            fields[name] = image_tensor(fields[name].to(device, non_blocking=True))
    return cast("Batch", fields)


class ExactSampler(DistributedSampler[Any]):
    """Evaluation order: rank r of W sees samples r, r + W, r + 2W, ... without padding or dropping.

    Lightning leaves a ``DistributedSampler`` alone, and the one it would inject counts some samples twice.

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
        self._rows = range(rank, len(dataset), world_size)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)


class EpochSampler(DistributedSampler[Any]):
    """Training order: a permutation drawn from (seed, epoch), shared by all ranks, yielding ``(epoch, index)``.

    The epoch is read when iteration starts, because Lightning's ``set_epoch`` comes too late after a resume. The
    permutation is padded with its own first entries so that every rank has equally many batches.

    Args:
        epoch: called at the start of each pass.
        augmentations: number of augmentations that epochs show in turn; one for every epoch if None.

    Example:
        >>> first = list(EpochSampler(range(4), lambda: 3, seed=0))
        >>> sorted(first)
        [(3, 0), (3, 1), (3, 2), (3, 3)]
        >>> first == list(EpochSampler(range(4), lambda: 3, seed=0))
        True
    """

    def __init__(
        self,
        dataset: Sized,
        epoch: Callable[[], int],
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        augmentations: int | None = None,
    ) -> None:
        super().__init__(cast("Dataset[Any]", dataset), world_size, rank, shuffle=True, seed=seed)
        self._length = len(dataset)
        self._epoch = epoch
        self._augmentations = augmentations

    def __iter__(self) -> Iterator[Any]:
        epoch = self._epoch()
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + epoch) % 2**63)
        order = torch.randperm(self._length, generator=generator)
        padded = order[torch.arange(self.total_size) % self._length]
        shown = epoch if self._augmentations is None else epoch % self._augmentations
        return iter([(shown, index) for index in padded[self.rank :: self.num_replicas].tolist()])
