"""95 % intervals from the sums and counts a metric keeps, so that no per-image value has to be stored."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist

import torch
from torch import Tensor

TABLE_ELEMENTS = 2**22  # redrawn tables held at once: 32 MiB of int64


def _normal_quantile(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"Expected argument `confidence` to lie strictly between 0 and 1, but got {confidence}.")
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def _around(centre: Tensor, half_width: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    half_width = half_width.masked_fill(count < 2, torch.nan)
    return centre - half_width, centre + half_width


def mean_interval(
    value_sum: Tensor, square_sum: Tensor, count: Tensor, confidence: float = 0.95
) -> tuple[Tensor, Tensor]:
    """Normal interval of a mean.

    ``mean ± z sqrt(s² / n)`` with ``s² = (square_sum - value_sum² / n) / (n - 1)`` and n = ``count``.

    Args:
        value_sum: sum of the values, any shape.
        square_sum: sum of their squares, same shape.
        count: number of values, same shape.
        confidence: coverage in (0, 1).

    Returns:
        Lower and upper bound, float64, not clipped; NaN where ``count`` is below 2.

    Raises:
        ValueError: if ``confidence`` is outside (0, 1).

    Example:
        >>> low, high = mean_interval(torch.tensor(15.0), torch.tensor(55.0), torch.tensor(5))  # of 1, 2, 3, 4, 5
        >>> round(low.item(), 4), round(high.item(), 4)
        (1.6141, 4.3859)
    """
    quantile = _normal_quantile(confidence)
    total, squares, n = value_sum.double(), square_sum.double(), count.double()
    variance = ((squares - total * total / n) / (n - 1)).clamp(min=0)
    return _around(total / n, quantile * (variance / n).sqrt(), count)


def wilson_interval(value_sum: Tensor, count: Tensor, confidence: float = 0.95) -> tuple[Tensor, Tensor]:
    """Wilson interval of a share, for values that are 0 or 1.

    Source: Wilson (1927), without continuity correction.

    Args:
        value_sum: number of ones, any shape.
        count: number of values, same shape.
        confidence: coverage in (0, 1).

    Returns:
        Lower and upper bound, float64; NaN where ``count`` is below 2.

    Raises:
        ValueError: if ``confidence`` is outside (0, 1).

    Example:
        >>> low, high = wilson_interval(torch.tensor(8.0), torch.tensor(10))
        >>> round(low.item(), 4), round(high.item(), 4)
        (0.4902, 0.9433)
    """
    quantile = _normal_quantile(confidence)
    n = count.double()
    share, shift = value_sum.double() / n, quantile**2 / n
    centre = (share + shift / 2) / (1 + shift)
    spread = (share * (1 - share) / n + shift / (4 * n)).clamp(min=0).sqrt()
    return _around(centre, quantile * spread / (1 + shift), count)


def ratio_interval(sums: Tensor, count: Tensor, confidence: float = 0.95) -> tuple[Tensor, Tensor]:
    """Normal interval of a ratio of sums, with images as the clusters.

    Source: the linearised variance of a ratio estimator (Cochran 1977, section 6.3). With ``R = Σa / Σb`` and n =
    ``count``, the variance is ``Σ (a - R b)² / ((n - 1) n mean(b)²)``.

    Args:
        sums: ``(5,)``, over the images: Σa, Σb, Σa², Σb², Σab.
        count: number of images.
        confidence: coverage in (0, 1).

    Returns:
        Lower and upper bound, float64, not clipped; NaN where ``count`` is below 2 or Σb is 0.

    Raises:
        ValueError: if ``confidence`` is outside (0, 1) or ``sums`` has another shape.

    Example:
        >>> sums = torch.tensor([3.0, 8.0, 5.0, 24.0, 6.0])  # a = 1, 2, 0 and b = 2, 2, 4
        >>> low, high = ratio_interval(sums, torch.tensor(3))
        >>> round(low.item(), 4), round(high.item(), 4)
        (-0.2157, 0.9657)
    """
    if sums.shape != (5,):
        raise ValueError(f"Expected argument `sums` to have shape (5,), but got {tuple(sums.shape)}.")
    quantile = _normal_quantile(confidence)
    a, b, aa, bb, ab = sums.double()
    n = count.double()
    ratio = a / b
    residual = (aa - 2 * ratio * ab + ratio**2 * bb).clamp(min=0)
    return _around(ratio, quantile * (residual / ((n - 1) * n)).sqrt() / (b / n), count)


def bootstrap_interval(
    confusion: Tensor, statistic: Callable[[Tensor], Tensor], draws: int = 1000, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Percentile bootstrap of a statistic of a confusion table.

    Source: Efron (1979). Redrawing (truth, prediction) pairs from the table equals redrawing the images.

    Args:
        confusion: ``(K, K)`` or ``(K, K + 1)`` int64 counts, rows are the truth.
        statistic: maps one such table to a scalar, or to ``(K,)`` values of which the mean of the defined ones
            counts.
        draws: number of redrawn tables.
        seed: seed of the draws, which are the same on every device.

    Returns:
        The 0.025 and 0.975 quantiles of the redrawn statistic, float64; NaN with fewer than 2 images.

    Raises:
        ValueError: if ``confusion`` is of another shape or dtype.

    Example:
        >>> table = torch.tensor([[50, 0], [0, 50]])
        >>> bootstrap_interval(table, lambda t: t.diagonal().sum() / t.sum(), draws=10)
        (tensor(1., dtype=torch.float64), tensor(1., dtype=torch.float64))
    """
    if confusion.ndim != 2 or confusion.shape[1] - confusion.shape[0] not in (0, 1) or confusion.dtype != torch.int64:
        raise ValueError(
            "Expected argument `confusion` to be an int64 tensor of shape (K, K) or (K, K + 1), "
            f"but got {tuple(confusion.shape)} {confusion.dtype}."
        )
    images = int(confusion.sum())
    if images < 2:
        undefined = confusion.new_full((), torch.nan, dtype=torch.float64)
        return undefined, undefined.clone()
    last_image = confusion.flatten().cumsum(0)  # image i lies in the first cell whose cumulative count exceeds i
    generator = torch.Generator().manual_seed(seed)
    chunk = max(1, TABLE_ELEMENTS // max(confusion.numel(), images))
    values: list[Tensor] = []
    for first in range(0, draws, chunk):
        rows = min(chunk, draws - first)
        picks = torch.randint(images, (rows, images), generator=generator).to(confusion.device)
        cells = torch.searchsorted(last_image, picks, right=True)
        tables = confusion.new_zeros(rows, confusion.numel()).scatter_add_(1, cells, torch.ones_like(cells))
        values += [statistic(table).double().nanmean() for table in tables.view(rows, *confusion.shape)]
    low, high = torch.stack(values).nanquantile(torch.tensor([0.025, 0.975]).to(values[0]))
    return low, high
