"""Whether all images of a pass show one and the same picture: what compares images then measures nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from protometry.run_folder.command_line.processes import gathered


class SamePicture:
    """Compares every image with the first, without waiting for the device."""

    def __init__(self) -> None:
        self._first: Tensor | None = None
        self._differs: Tensor | bool = False
        self._images = 0

    def add(self, images: Tensor) -> None:
        """Look at a batch of ``(B, 3, H, W)`` images."""
        if self._first is None and len(images):
            self._first = images[:1].clone()
        if self._first is not None:
            self._differs = self._differs | (images != self._first).any()
        self._images += len(images)

    def reason(self) -> str | None:
        """Why nothing can be measured, over all processes, which all have to call it; None if some image differs."""
        own = None if self._first is None else self._first.cpu()
        shares = gathered((own, bool(self._differs), self._images))
        firsts, images = [first for first, _, _ in shares if first is not None], sum(count for _, _, count in shares)
        differ = any(differs for _, differs, _ in shares) or any(not torch.equal(first, firsts[0]) for first in firsts)
        return None if differ or images < 2 else f"all {images} images are the same picture"


def without_values(summary: Mapping[str, Any]) -> dict[str, Any]:
    """A summary of nothing, with the same fields."""
    nothing = dict(summary, n=0, skipped=summary["n"] + summary["skipped"])
    for name, value in summary.items():
        if isinstance(value, list):
            nothing[name] = [math.nan] * len(value)
        elif isinstance(value, float) and name not in ("n", "skipped"):
            nothing[name] = math.nan
    return nothing
