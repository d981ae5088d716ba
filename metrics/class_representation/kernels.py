"""Kernels: what classes are represented by: how similar they are to each other, and what their features are like."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from metrics.class_representation.class_similarity import class_similarity, similar_class_pairs
from metrics.primitives.checks import check_at_least, check_ids, check_tensor
from metrics.primitives.chunks import image_chunks
from metrics.primitives.gaussian_mixture import fit_two_normals
from metrics.primitives.ranking import gather_units

_SMALLEST_SCALE = 1e-5  # of a map


def _grounding_sums(weight: Tensor, class_attributes: Tensor, pairs: int) -> tuple[Tensor, Tensor]:
    """Structural grounding, and the number of pairs left out of it."""
    check_tensor("weight", weight, (len(class_attributes), "U"), "float")
    first, second = similar_class_pairs(class_attributes, pairs).T
    model, truth = class_similarity(weight)[first, second], class_similarity(class_attributes)[first, second]
    undefined = ~(model.isfinite() & truth.isfinite())
    value = model.masked_fill(undefined, 0).sum() / truth.masked_fill(undefined, 0).sum()
    return value, undefined.sum()


def structural_grounding(weight: Tensor, class_attributes: Tensor, pairs: int = 25) -> Tensor:
    """Whether classes that look alike have similar weights ("CUB similarity").

    Source: Norrenbrock et al. (2025): ``Σ S_model / Σ S_gt`` over the ``pairs`` pairs of classes with the largest S_gt,
    the cosine similarity of the rows of ``class_attributes``; S_model is that of the rows of ``weight``, signs kept.
    A pair in which a class has no attributes or no weights is left out of both sums.

    Args:
        weight: ``(K, U)`` float head weights without bias.
        class_attributes: ``(K, A)`` float >= 0, frequency of each attribute in each class.
        pairs: number of pairs; all if there are fewer.

    Returns:
        float64 scalar, about [-1, 1] (above 1 where the model's classes are more alike than the real ones), higher is
        better; NaN without any defined pair.

    Raises:
        ValueError: if a shape or dtype differs from the above or ``pairs`` is below 1.

    Example:
        >>> attributes = torch.tensor([[1.0, 0.0], [4.0, 3.0], [0.0, 1.0]])
        >>> structural_grounding(torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]), attributes, pairs=2)
        tensor(0.8622, dtype=torch.float64)
    """
    return _grounding_sums(weight, class_attributes, pairs)[0]


def normal_overlap(mean: Tensor, std: Tensor, other_mean: Tensor, other_std: Tensor) -> Tensor:
    """The area under the smaller of two normal densities.

    Source: Norrenbrock et al. (2025), as released. Exact: in units of the narrower normal, with the wider one at
    distance d and of width r, the densities are equal at the two roots of (r² − 1) x² + 2 d x = d² + 2 r² ln r.

    Args:
        mean: float, any shape.
        std: float > 0.
        other_mean: float, of the other normal; all four broadcast.
        other_std: float > 0.

    Returns:
        float64 in [0, 1]; NaN where a standard deviation is not positive or something is not finite.

    Example:
        >>> zero, one, two = torch.tensor([0.0, 1.0, 2.0])
        >>> normal_overlap(zero, one, two, one), normal_overlap(zero, one, zero, two)
        (tensor(0.3173, dtype=torch.float64), tensor(0.6773, dtype=torch.float64))
    """
    narrow, wide = torch.minimum(std, other_std).double(), torch.maximum(std, other_std).double()
    d, r = (mean.double() - other_mean.double()).abs() / narrow, wide / narrow
    defined = (narrow > 0) & d.isfinite() & r.isfinite()
    root = d + r * (d.square() + 2 * (r.square() - 1) * r.log()).sqrt()
    right = (d.square() + 2 * r.square() * r.log()) / root
    left = -root / (r.square() - 1)  # minus infinity for equal widths
    cdf = torch.special.ndtr
    overlap: Tensor = cdf(left) + cdf(-right) + cdf((right - d) / r) - cdf((left - d) / r)
    overlap = overlap.masked_fill(root == 0, 1).clamp(0, 1)  # twice the same normal
    return overlap.masked_fill(~defined, torch.nan)


def contrastiveness(scores: Tensor, max_iterations: int = 100, tolerance: float = 1e-3) -> Tensor:
    """How clearly the scores of a unit fall into two groups: present and absent.

    Source: Norrenbrock et al. (2025), as released: one minus the overlap of the two normals, without their weights, of
    a Gaussian mixture fitted to the scores of a unit. The fit is deterministic: standardised scores, started from the
    exact two-means split, each unit until its mean log-likelihood moves by less than ``tolerance``, 1e-6 added to every
    variance.

    Args:
        scores: ``(N, U)`` float, one row for every training image.
        max_iterations: of the fit, at least 1.
        tolerance: of the fit. The value depends on it: a single Gaussian has 0.55 with 1e-3, and 0.1 to 0.2 with 0.

    Returns:
        ``(U,)`` float64 in [0, 1], higher is better; NaN where all scores are equal or one is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above or ``max_iterations`` is below 1.

    Example:
        >>> contrastiveness(torch.tensor([[-3.1], [-3.0], [-2.9], [2.9], [3.0], [3.1]]))
        tensor([1.], dtype=torch.float64)
    """
    check_tensor("scores", scores, ("N", "U"), "float")
    check_at_least("max_iterations", max_iterations, 1)
    if len(scores) < 2 or not scores.shape[1]:
        return scores.new_full((scores.shape[1],), torch.nan, dtype=torch.float64)
    return torch.cat([_contrasts(rows, max_iterations, tolerance) for (rows,) in image_chunks(scores.T)])


def _contrasts(rows: Tensor, max_iterations: int, tolerance: float) -> Tensor:
    """Contrastiveness of ``(U, N)`` rows; they are sorted first, so that the order of images moves no bit."""
    values = rows.double().sort(dim=1).values
    undefined = ~values.isfinite().all(dim=1) | (values[:, 0] == values[:, -1])
    values = values.masked_fill(undefined[:, None], 0)
    deviation, mean = torch.std_mean(values, dim=1, correction=0, keepdim=True)
    values = (values - mean) / deviation.masked_fill(undefined[:, None], 1)
    means, deviations = fit_two_normals(values, max_iterations, tolerance)
    return (1 - normal_overlap(means[0], deviations[0], means[1], deviations[1])).masked_fill(undefined, torch.nan)


def _class_independence_update(
    scores: Tensor, labels: Tensor, num_classes: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sums ``(K, U)`` and numbers ``(K,)`` of scores by class, their minimum and maximum ``(U,)``."""
    check_tensor("scores", scores, ("B", "U"), "float")
    check_tensor("labels", labels, (len(scores),), "int64")
    check_ids("labels", labels, num_classes)
    values = scores.detach().double()
    sums = values.new_zeros(num_classes, values.shape[1]).index_add(0, labels, values)
    counts = labels.new_zeros(num_classes).index_add(0, labels, torch.ones_like(labels))
    edge = values.new_full((1, values.shape[1]), torch.inf)  # of no image
    return sums, counts, torch.cat([values, edge]).amin(dim=0), torch.cat([values, -edge]).amax(dim=0)


def _class_independence_compute(sums: Tensor, counts: Tensor, minimum: Tensor, maximum: Tensor) -> Tensor:
    shifted = sums - counts[:, None] * minimum
    total = shifted.sum(dim=0)
    values = (1 - shifted.amax(dim=0) / total).clamp(0, 1 - 1 / len(sums))  # rounding aside, it is within
    return values.masked_fill((minimum >= maximum) | ~total.isfinite(), torch.nan)


def class_independence(scores: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """How little of a unit's activation comes from a single class (generality).

    Source: Norrenbrock et al. (2025), as released: ``1 − max_c Σ_{y = c} f̃ / Σ f̃`` with f̃ the scores of a unit minus
    their minimum over all images.

    Args:
        scores: ``(N, U)`` float, one row for every training image.
        labels: ``(N,)`` int64 in ``[0, K)``.
        num_classes: K.

    Returns:
        ``(U,)`` float64 in [0, 1 − 1/K], higher is better; NaN where all scores are equal or one is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above, or a label is not below K.

    Example:
        >>> class_independence(torch.tensor([[1.0], [3.0], [2.0], [1.0]]), torch.tensor([0, 0, 1, 1]), 2)
        tensor([0.3333], dtype=torch.float64)
    """
    return _class_independence_compute(*_class_independence_update(scores, labels, num_classes))


def scale_invariant_diversity(maps: Tensor, weight: Tensor, predictions: Tensor, k: int = 5) -> Tensor:
    """How far the features of the predicted class look at different places (SID@k).

    Source: Norrenbrock et al. (2025), as released: ``1/k Σ_cells max_u P_u`` over the k features u with the largest
    signed weights of the predicted class among its non-zero ones (ties: lower index); P_u is the softmax over cells of
    the map divided by its mean magnitude, which is at least 1e-5.

    Args:
        maps: ``(B, U, h, w)`` float.
        weight: ``(K, U)`` float head weights without bias.
        predictions: ``(B,)`` int64 in ``[0, K)``.
        k: number of features, at least 1.

    Returns:
        ``(B,)`` float64 in [1/k, 1], higher is better; NaN where the predicted class has fewer than k non-zero weights
        or a map is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above, ``k`` is below 1, or a prediction is not below K.

    Example:
        >>> maps = torch.tensor([[[[2.0, 0.0]], [[0.0, 2.0]]]])
        >>> scale_invariant_diversity(maps, torch.ones(1, 2), torch.tensor([0]), k=2)
        tensor([0.8808], dtype=torch.float64)
    """
    check_tensor("maps", maps, ("B", "U", "h", "w"), "float")
    check_tensor("weight", weight, ("K", maps.shape[1]), "float")
    check_tensor("predictions", predictions, (len(maps),), "int64")
    check_ids("predictions", predictions, len(weight))
    check_at_least("k", k, 1)
    largest, units = weight.masked_fill(weight == 0, -torch.inf).sort(dim=1, descending=True, stable=True)
    units = units[:, :k].masked_fill(largest[:, :k].isinf(), -1)
    units = F.pad(units, (0, k - units.shape[1]), value=-1)[predictions]
    return torch.cat([_diversity(*chunk) for chunk in image_chunks(gather_units(maps, units))])


def _diversity(maps: Tensor) -> Tensor:
    """``(B, k, h, w)`` maps to ``(B,)``; NaN where one is not finite."""
    cells = maps.double().flatten(2)
    scale = cells.abs().mean(dim=2, keepdim=True).clamp(min=_SMALLEST_SCALE)
    values = (cells / scale).softmax(dim=2).amax(dim=1).sum(dim=1) / maps.shape[1]
    return values.clamp(1 / maps.shape[1], 1)  # rounding aside, it is within
