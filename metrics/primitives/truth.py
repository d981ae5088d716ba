"""What is true of images where some of it is unknown: the one rule by which losses, metrics and pages read samples.

A sample stores bool values and, beside them, how certain they are; what is of certainty 0 is unknown, and its value
means nothing. Whatever reads them gets 1, 0 or NaN: ``truth == 1`` is present, ``truth == 0`` absent, and neither holds
for an unknown one, which losses, metrics, interventions and concept vectors leave out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from protometry.metrics.primitives.checks import check_tensor, check_values


def truth_of(batch: Mapping[str, Any], name: Literal["concepts", "labels"]) -> Tensor:
    """The values of a field of a sample or a batch: bool, or float32 with NaN where unknown if there are certainties.

    Example:
        >>> certainty = torch.tensor([4, 1, 0])
        >>> truth_of({"concepts": torch.tensor([True, False, True]), "concept_certainty": certainty}, "concepts")
        tensor([1., 0., nan])
    """
    values: Tensor = batch[name]
    certainty: Tensor | None = batch.get(f"{name.removesuffix('s')}_certainty")
    return values if certainty is None else values.float().masked_fill(certainty == 0, torch.nan)


def check_truth(name: str, truth: Tensor, shape: tuple[int | str, ...]) -> None:
    """Refuse what is neither bool nor a float of 0, 1 and NaN for unknown, or of another shape, with a ``ValueError``.

    Example:
        >>> check_truth("labels", torch.tensor([[0.5]]), ("B", 1))
        Traceback (most recent call last):
        ValueError: Expected argument `labels` to hold 0, 1 and NaN for what is unknown, but got others.
    """
    check_tensor(name, truth, shape, "float" if truth.is_floating_point() else "bool")
    if truth.is_floating_point():
        allowed = (truth == 0) | (truth == 1) | truth.isnan()
        check_values(allowed, f"Expected argument `{name}` to hold 0, 1 and NaN for what is unknown, but got others.")
