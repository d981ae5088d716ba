"""How clearly the scores of a unit fall into two groups: present and absent."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.kept_scores import KeptScores
from protometry.metrics.primitives.checks import check_at_least, check_tensor
from protometry.metrics.primitives.chunks import image_chunks
from protometry.metrics.primitives.gaussian_mixture import fit_two_normals


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


def measured_units(num_units: int, active: Tensor | None) -> Tensor:
    """The units to measure, ``(num_units,)`` bool."""
    check_at_least("num_units", num_units, 1)
    if active is None:
        return torch.ones(num_units, dtype=torch.bool)
    check_tensor("active", active, (num_units,), "bool")
    return active.clone()


class Contrastiveness(KeptScores):
    """Mean over units of how clearly their scores fall into two groups, present and absent (higher is better).

    Of the scores on the **training** images without augmentation.

    All are kept, as float32, because a mixture is fitted to them: N·U·4 bytes for the U active units on every process
    once it synchronises, up to twice as much while images are added.
    """

    unit = "fraction"
    averaged_over = "unit"
    undefined = "the scores of every unit are the same on all images"
    higher_is_better = True
    units: Tensor

    def __init__(
        self,
        num_units: int,
        active: Tensor | None = None,
        max_iterations: int = 100,
        tolerance: float = 1e-3,
        **kwargs: Any,
    ) -> None:
        units = measured_units(num_units, active).nonzero().squeeze(1)
        super().__init__(len(units), **kwargs)
        check_at_least("max_iterations", max_iterations, 1)
        self.num_units = num_units
        self.max_iterations = max_iterations
        self.tolerance = tolerance
        self.register_buffer("units", units, persistent=False)

    def update(self, scores: Tensor) -> None:
        check_tensor("scores", scores, ("B", self.num_units), "float")
        self._append(scores.detach().float()[:, self.units])

    def values(self) -> Tensor:
        values = contrastiveness(self.scores, self.max_iterations, self.tolerance)
        return values.new_full((self.num_units,), torch.nan).index_copy(0, self.units, values)


CONTRASTIVENESS = MetricEntry(
    "class_representation/contrastiveness",
    Contrastiveness,
    Words(
        question="Do the scores of a unit fall into two groups?",
        name="Contrastiveness",
        formula="mean over units of 1 − overlap of the two normals fitted to their scores on the training images",
        source="released code of [N25]",
        misread="Any two groups count: every sparse ReLU unit has a group of zeros. A single Gaussian scores 0.55, not "
        "0.",
    ),
    lambda facts: Contrastiveness(len(facts.active), (facts.features != 0).any(dim=0)),
    needs=("weight", "features", "training"),
    view="training",
)
