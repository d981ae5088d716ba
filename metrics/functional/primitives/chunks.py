"""Chunks of images, for kernels whose temporaries are many times larger than their input.

Temporaries that stay in the cache cost a fraction of those that go through memory, and memory has an end. Images are
independent of each other in every kernel that does so, hence the size of a chunk moves no bit of a result.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

CPU_ELEMENTS = 2**20  # 4 MiB of float32
DEVICE_ELEMENTS = 2**26  # 256 MiB, enough to keep an accelerator busy


def image_chunks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split tensors along their images.

    Args:
        tensors: ``(B, ...)`` each, on one device.

    Returns:
        Views of the same images of every tensor: as many images as leave the largest of them about 2^20 elements on a
        CPU and 2^26 elsewhere, at least one. A single empty chunk for B = 0.

    Example:
        >>> [len(part) for (part,) in image_chunks(torch.zeros(5, 2**19))]
        [2, 2, 1]
    """
    at_once = CPU_ELEMENTS if tensors[0].device.type == "cpu" else DEVICE_ELEMENTS
    step = max(1, at_once // max(1, *(tensor[:1].numel() for tensor in tensors)))
    return zip(*(torch.split(tensor, step) for tensor in tensors), strict=True)
