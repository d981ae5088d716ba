"""Evaluation mode in full precision, in which models are projected, pruned and evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning import LightningModule


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Plain float32: no autocast, and no TF32 in convolutions, which would move a patch by more than its rounding."""
    cudnn: Any = torch.backends.cudnn
    before, cudnn.allow_tf32 = cudnn.allow_tf32, False
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        cudnn.allow_tf32 = before


@contextmanager
def evaluation_mode(module: LightningModule) -> Iterator[None]:
    """Evaluation mode in full precision; afterwards every part is in the mode it was in."""
    modes = {name: part.training for name, part in module.named_modules()}
    module.eval()
    try:
        with full_precision(module.device):
            yield
    finally:
        for name, part in module.named_modules():
            part.training = modes[name]
