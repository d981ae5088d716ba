"""The small backbone for training from scratch, in minutes on a CPU, on the drawn birds of SketchBirds."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

from torch import nn

SKETCH_CHANNELS = 128


def sketch() -> nn.Sequential:
    """Three times [convolution, BatchNorm, max-pool by 2, ReLU], then one more convolution, BatchNorm, ReLU.

    Ours, without pretraining. 24, 48, 96, then 128 channels; all convolutions 3×3 with padding 1 and no bias (BatchNorm
    has one). 163,672 parameters; one cell per 8×8 pixels. A ReLU before the pooling would give the same values, but
    have four times as many to compute.

    Returns:
        A network ``(B, 3, H, W)`` -> ``(B, 128, H // 8, W // 8)``, non-negative.

    Example:
        >>> import torch
        >>> sketch()(torch.zeros(1, 3, 64, 48)).shape
        torch.Size([1, 128, 8, 6])
    """
    blocks: OrderedDict[str, nn.Module] = OrderedDict()
    widths = [3, 24, 48, 96, SKETCH_CHANNELS]
    for index, (before, after) in enumerate(pairwise(widths), start=1):
        block = [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after)]
        pooled = [nn.MaxPool2d(2)] if after < SKETCH_CHANNELS else []
        blocks[f"block{index}"] = nn.Sequential(*block, *pooled, nn.ReLU())
    return nn.Sequential(blocks)
