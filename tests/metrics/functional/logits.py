"""Random logits with many ties, and F1 by its definition."""

from __future__ import annotations

import math

import pytest
import torch


def random_case(seed, dtype, batch=9, classes=5):
    """Logits with many ties."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(-2, 3, (batch, classes), generator=generator).to(dtype)
    return logits, torch.randint(classes, (batch,), generator=generator)


def slow_f1(tp, fp, fn):
    return 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else math.nan


def same(values, expected):
    return values == pytest.approx(expected, abs=1e-12, nan_ok=True)
