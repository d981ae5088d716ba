"""95 % intervals from the sums and counts a metric keeps, so that no per-image value has to be stored."""

from __future__ import annotations

import math
from statistics import NormalDist

import torch
from scipy.special import stdtrit
from torch import Tensor

_ROUNDING = 1e-12  # of the sum of squares: a smaller variance is a rounding error

_UNSEEN = 0.5  # events of the size of a range that a sample may be missing

Bounds = tuple[Tensor, Tensor]
Range = tuple[float, float]


def _normal_quantile(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"Expected argument `confidence` to lie strictly between 0 and 1, but got {confidence}.")
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def _student_quantile(confidence: float, count: Tensor) -> Tensor:
    """Two-sided quantile of Student's t with ``count - 1`` degrees of freedom, at least one."""
    freedom = (count.double() - 1).clamp(min=1)
    quantile = stdtrit(freedom.tolist(), 0.5 + confidence / 2)
    return torch.tensor(quantile, dtype=torch.float64, device=count.device)


def _around(centre: Tensor, half_width: Tensor, count: Tensor) -> Bounds:
    half_width = half_width.masked_fill(count < 2, torch.nan)
    return centre - half_width, centre + half_width


def _within(bounds: Bounds, spread: Tensor, centre: Tensor, n: Tensor, ends: Range, quantile: float) -> Bounds:
    """Bounds clipped to a range. Without any spread, a share that n values could have missed may lie at either end."""
    unseen = quantile**2 / (n + quantile**2)  # the upper bound of Wilson's interval of 0 of n
    low = torch.where(spread > 0, bounds[0], centre - (centre - ends[0]) * unseen)
    high = torch.where(spread > 0, bounds[1], centre + (ends[1] - centre) * unseen)
    undefined = ~(low.isfinite() & high.isfinite()) | (n < 2)
    return low.clamp(*ends).masked_fill(undefined, torch.nan), high.clamp(*ends).masked_fill(undefined, torch.nan)


def mean_interval(
    value_sum: Tensor,
    square_sum: Tensor,
    count: Tensor,
    confidence: float = 0.95,
    value_range: Range = (-math.inf, math.inf),
) -> Bounds:
    """Interval of a mean.

    Student's ``mean ± t sqrt(s² / n)`` with ``s² = (square_sum - value_sum² / n) / (n - 1)`` and n = ``count``. It
    misses means of rare events, where most values lie at an end of their range. Where the values deviate from an end by
    a mean m below their standard deviation, they are taken for a share of ``m / d`` events that deviate by d, which
    have the same mean and variance; the interval is Wilson's (1927) with t, times d. Larger events may be missing by
    luck: if the range is finite, d is the mean size of these events and of half an event as large as the range. Where
    all values are equal, a share that Wilson's interval of 0 of n allows may lie at either end of the range.

    Args:
        value_sum: sum of the values, any shape.
        square_sum: sum of their squares, same shape.
        count: number of values, same shape.
        confidence: coverage in (0, 1).
        value_range: smallest and largest possible value.

    Returns:
        Lower and upper bound, float64, within ``value_range``; NaN where ``count`` is below 2 and where all values are
        equal in a range without an end.

    Example:
        >>> low, high = mean_interval(torch.tensor(15.0), torch.tensor(55.0), torch.tensor(5))  # of 1, 2, 3, 4, 5
        >>> round(low.item(), 4), round(high.item(), 4)
        (1.0368, 4.9632)
    """
    total, squares, n = value_sum.double(), square_sum.double(), count.double()
    quantile = _student_quantile(confidence, count)
    variance = (squares - total * total / n) / (n - 1)
    variance = variance.masked_fill(variance <= _ROUNDING * squares / n, 0)
    low, high = _around(total / n, quantile * (variance / n).sqrt(), count)
    for end, sign in zip(value_range, (1, -1), strict=True):
        if math.isfinite(end):
            deviations = sign * (total - n * end)
            events = deviations**2 / (squares - 2 * end * total + n * end * end)
            length = value_range[1] - value_range[0]
            unseen, unseen_size = (_UNSEEN, _UNSEEN * length) if math.isfinite(length) else (0.0, 0.0)
            size = (deviations + unseen_size) / (events + unseen)
            bounds = [end + sign * size * bound for bound in _wilson(deviations / size / n, n, quantile)]
            rare = events <= 0.5 * n
            low, high = (torch.where(rare, new, old) for new, old in zip(bounds[::sign], (low, high), strict=True))
    return _within((low, high), variance, total / n, n, value_range, _normal_quantile(confidence))


def pairs_interval(pairs: Tensor, confidence: float = 0.95, value_range: Range = (-math.inf, math.inf)) -> Bounds:
    """Interval of the mean over items of the mean over their pairs with others, for other items.

    An item counts in the pairs of all others, too, so that an interval of the items' own means would be too narrow.

    Source: the jackknife of a mean over pairs (Arvesen 1969): :func:`mean_interval` of the n pseudo-values
    ``T - (n - 1) (T_i - mean of T_i)``, with the mean T of all pairs and the mean T_i of those without item i. The text
    of the paper could not be consulted for this. Deviation: they are centred on T, whose bias by pairs of an item with
    itself is not corrected.

    Args:
        pairs: ``(..., n, n)`` float, the value of each ordered pair, NaN where undefined; need not be symmetric. A
            row holds the pairs of an item.
        confidence: coverage in (0, 1).
        value_range: smallest and largest possible value of a pair.

    Returns:
        Lower and upper bound, ``(...)`` float64, within ``value_range``; NaN where no pair is left without some item.

    Example:
        >>> pairs = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]]).fill_diagonal_(torch.nan)
        >>> low, high = pairs_interval(pairs)  # of the pseudo-values 0, 2 and 4
        >>> round(low.item(), 4), round(high.item(), 4)
        (-2.9683, 6.9683)
    """
    defined = pairs.isfinite()
    values, known = pairs.double().masked_fill(~defined, 0), defined.double()
    items = defined.any(dim=-1)
    count = items.sum(dim=-1)
    sums, numbers = (table.sum(dim=-1, keepdim=True) for table in (values, known))
    without = (sums - values) / (numbers - known)  # (..., n, n), the mean of the pairs of a row without each item
    same = torch.eye(pairs.shape[-1], dtype=torch.bool, device=pairs.device)
    left_out = without.masked_fill(same | (numbers == known), torch.nan).nanmean(dim=-2).masked_fill(~items, 0)
    moved = left_out - (left_out.sum(dim=-1) / count)[..., None]
    mean = (sums / numbers).nanmean(dim=(-2, -1))
    pseudo = (mean[..., None] - (count - 1)[..., None] * moved).masked_fill(~items, 0)
    return mean_interval(pseudo.sum(dim=-1), pseudo.square().sum(dim=-1), count, confidence, value_range)


def _wilson(share: Tensor, n: Tensor, quantile: Tensor | float) -> Bounds:
    """Wilson's bounds; rounding aside they hold the share, and are 0 of 0 and 1 of 1."""
    shift = quantile**2 / n
    centre = (share + shift / 2) / (1 + shift)
    spread = (share * (1 - share) / n + shift / (4 * n)).clamp(min=0).sqrt()
    half_width = quantile * spread / (1 + shift)
    return (centre - half_width).minimum(share).clamp(min=0), (centre + half_width).maximum(share).clamp(max=1)


def wilson_interval(value_sum: Tensor, count: Tensor, confidence: float = 0.95) -> Bounds:
    """Wilson interval of a share, for values that are 0 or 1.

    Source: Wilson (1927), without continuity correction.

    Args:
        value_sum: number of ones, any shape.
        count: number of values, same shape.
        confidence: coverage in (0, 1).

    Returns:
        Lower and upper bound, float64; NaN where ``count`` is below 2.

    Example:
        >>> low, high = wilson_interval(torch.tensor(8.0), torch.tensor(10))
        >>> round(low.item(), 4), round(high.item(), 4)
        (0.4902, 0.9433)
    """
    n = count.double()
    low, high = _wilson(value_sum.double() / n, n, _normal_quantile(confidence))
    return low.masked_fill(n < 2, torch.nan), high.masked_fill(n < 2, torch.nan)


def stratified_wilson_interval(value: Tensor, correct: Tensor, images: Tensor, confidence: float = 0.95) -> Bounds:
    """Wilson interval of a mean over classes of shares of their images, such as balanced accuracy and macro F1.

    Wilson (1927) with the effective number of images (Korn and Graubard 1998): ``v (1 - v) / variance`` with the
    variance ``Σ r (1 - r) / (n - 1) / K²`` of the mean of the recalls r, but at most ``K² / Σ (1 / n)``, the number if
    all classes had the same recall. The numbers n of images of the K classes are taken as given. Macro F1
    varies as much as the mean recall v.

    Args:
        value: the mean, scalar.
        correct: ``(K,)`` images of each class that are classified correctly.
        images: ``(K,)`` images of each class; classes without any are left out.
        confidence: coverage in (0, 1).

    Returns:
        Lower and upper bound, float64; NaN where the effective number is below 2.

    Example:
        >>> images = torch.tensor([3.0] * 20)
        >>> low, high = stratified_wilson_interval(torch.tensor(1.0), images, images)  # as for 60 of 60
        >>> round(low.item(), 4), round(high.item(), 4)
        (0.9398, 1.0)
    """
    value, n = value.double(), images.double()
    recall = correct.double() / n
    classes = (n > 0).sum()
    variance = torch.where(n > 1, recall * (1 - recall) / (n - 1), 0).sum() / classes**2
    effective = classes**2 / torch.where(n > 0, 1 / n, 0).sum()
    effective = torch.where(variance > 0, effective.minimum(value * (1 - value) / variance), effective)
    return wilson_interval(value * effective, effective, confidence)


def ratio_interval(
    sums: Tensor, count: Tensor, confidence: float = 0.95, value_range: Range = (-math.inf, math.inf)
) -> Bounds:
    """Interval of a ratio of sums, with images as the clusters.

    Source: the linearised variance of a ratio estimator (Cochran 1977, section 6.3). With ``R = Σa / Σb`` and n =
    ``count``, the variance is ``Σ (a - R b)² / ((n - 1) n mean(b)²)``; its quantile is Student's t. Of a ratio in
    [0, 1], it is the interval of Wilson (1927) with the effective number ``R (1 - R) / variance`` (Korn and Graubard
    1998), which holds for events in few images as well. Images that all have the same ratio are treated as in
    :func:`mean_interval`.

    Args:
        sums: ``(5,)``, over the images: Σa, Σb, Σa², Σb², Σab.
        count: number of images.
        confidence: coverage in (0, 1).
        value_range: smallest and largest possible ratio.

    Returns:
        Lower and upper bound, float64, within ``value_range``; NaN where ``count`` is below 2, where Σb is 0 and where
        all images have the same ratio in a range without an end.

    Example:
        >>> sums = torch.tensor([3.0, 8.0, 5.0, 24.0, 6.0])  # a = 1, 2, 0 and b = 2, 2, 4
        >>> low, high = ratio_interval(sums, torch.tensor(3))
        >>> round(low.item(), 4), round(high.item(), 4)
        (-0.9217, 1.6717)
    """
    if sums.shape != (5,):
        raise ValueError(f"Expected argument `sums` to have shape (5,), but got {tuple(sums.shape)}.")
    quantile = _student_quantile(confidence, count)
    a, b, aa, bb, ab = sums.double()
    n = count.double()
    ratio = a / b
    residual = aa - 2 * ratio * ab + ratio**2 * bb
    residual = residual.masked_fill(residual <= _ROUNDING * aa, 0)
    variance = residual / ((n - 1) * n) / (b / n).square()
    if value_range == (0.0, 1.0):
        bounds = _wilson(ratio, ratio * (1 - ratio) / variance, quantile)
    else:
        bounds = _around(ratio, quantile * variance.sqrt(), count)
    return _within(bounds, residual, ratio, n, value_range, _normal_quantile(confidence))


def lift_interval(totals: Tensor, products: Tensor, count: Tensor, confidence: float = 0.95) -> Bounds:
    """Interval of the difference of two ratios in [0, 1] with one denominator, with images as the clusters.

    Source: the method of variance estimates recovery (Zou and Donner 2008; Newcombe 1998, method 10, for shares): the
    intervals of :func:`ratio_interval` of both ratios and the correlation r of their residuals. With ratios R and S and
    their bounds l and u, the lower bound is ``R - S - sqrt((R - l_R)² - 2 r (R - l_R) (u_S - S) + (u_S - S)²)``, the
    upper one its mirror image. Rare events that are missing by luck count as in the interval of each ratio; r is 0
    where a ratio is the same for all images.

    Args:
        totals: ``(3,)``, over the images: Σa, Σc, Σb of the ratios Σa / Σb and Σc / Σb.
        products: ``(3, 3)``, over the images, the sums of the products of a, c and b.
        count: number of images.
        confidence: coverage in (0, 1).

    Returns:
        Lower and upper bound, float64, within [-1, 1]; NaN where ``count`` is below 2 and where Σb is 0.

    Example:
        >>> rows = torch.tensor([[1.0, 0.0, 1.0]] * 10)  # always right, next to a baseline that never is
        >>> low, high = lift_interval(rows.sum(dim=0), rows.T @ rows, torch.tensor(10))
        >>> round(low.item(), 4), high.item()
        (0.6075, 1.0)
    """
    totals, products = totals.double(), products.double()
    ratios = totals[:2] / totals[2]
    bounds = []
    for i in (0, 1):
        sums = torch.stack([totals[i], totals[2], products[i, i], products[2, 2], products[i, 2]])
        bounds.append(ratio_interval(sums, count, confidence, (0.0, 1.0)))
    crossed = ratios[:, None] * products[2, :2]
    residuals = products[:2, :2] - crossed - crossed.T + ratios[:, None] * ratios * products[2, 2]
    spread = residuals.diagonal()
    spread = spread.masked_fill(spread <= _ROUNDING * products.diagonal()[:2], 0)
    correlation = (residuals[0, 1] / spread.prod().sqrt()).clamp(-1, 1).masked_fill((spread == 0).any(), 0)
    lift = ratios[0] - ratios[1]
    below, above = (
        (one.square() - 2 * correlation * one * other + other.square()).clamp(min=0).sqrt()
        for one, other in (
            (ratios[0] - bounds[0][0], bounds[1][1] - ratios[1]),
            (bounds[0][1] - ratios[0], ratios[1] - bounds[1][0]),
        )
    )
    return (lift - below).clamp(-1, 1), (lift + above).clamp(-1, 1)


def lifts_interval(lifts: Tensor) -> Bounds:
    """:func:`mean_interval` of ``(N,)`` differences of two fractions; NaN are left out."""
    n = lifts.isfinite().sum()
    return mean_interval(lifts.nansum(), lifts.square().nansum(), n, value_range=(-1.0, 1.0))


def lift_over(name: str, control: Tensor, lift: Tensor, bounds: Bounds) -> dict[str, float]:
    """What a summary says of a control: its value, the lift of the metric over it, and the interval of the lift.

    Args:
        name: of the control.
        control: its value, scalar.
        lift: value minus control.
        bounds: of the lift, over the same images or items as both.

    Returns:
        ``<name>``, ``lift_over_<name>``, ``lift_over_<name>_low`` and ``lift_over_<name>_high``.
    """
    values = {"": lift, "_low": bounds[0], "_high": bounds[1]}
    return {name: float(control)} | {f"lift_over_{name}{end}": float(value) for end, value in values.items()}
