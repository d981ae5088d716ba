"""Chunks of images, for kernels whose temporaries are many times larger than their input.

Temporaries that stay in the cache cost a fraction of temporaries that go through memory, and memory is limited. Images
are independent of each other in every kernel that does so, hence the size of a chunk moves no bit of a result.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

CPU_ELEMENTS = 2**18  # 1 MiB of float32: a few fit in the cache of a core
DEVICE_ELEMENTS = 2**26  # 256 MiB, enough to keep an accelerator busy


def image_chunks(*tensors: Tensor, dim: int = 0) -> Iterator[tuple[Tensor, ...]]:
    """Split tensors along their images.

    Args:
        tensors: ``(B, ...)`` each, on one device.
        dim: of the images, or of the units ``(B, k, ...)`` where one image has too many.

    Returns:
        Views of the same images of every tensor: as many images as leave the largest of them about 2^18 elements on a
        CPU and 2^26 elsewhere, at least one. A single empty chunk for B = 0.

    Example:
        >>> [len(part) for (part,) in image_chunks(torch.zeros(5, 2**17))]
        [2, 2, 1]
    """
    at_once = CPU_ELEMENTS if tensors[0].device.type == "cpu" else DEVICE_ELEMENTS
    step = max(1, at_once // max(1, *(tensor.numel() // max(1, tensor.shape[dim]) for tensor in tensors)))
    return zip(*(torch.split(tensor, step, dim) for tensor in tensors), strict=True)
