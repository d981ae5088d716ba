"""The constants of feature selection: fit to classes, redundancy and locality.

They are computed from sums over images, so that batches, their order and processes do not matter and no map is kept.
Source: Norrenbrock et al. 2025 (QPM).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor, distributed

LARGEST_LOCALITY = math.sqrt(10) * 0.1
CONSTANT = 1e-6  # standard deviation over root mean square, below which a feature is constant up to rounding
TINY = 1e-6


@dataclass(frozen=True)
class FeatureConstants:
    """The constants of the selection problem, float64 on the CPU.

    Args:
        fit: ``(F, K)`` in [-1, 1], Pearson correlation of a feature with a class over the largest there is; A.
        redundancy: ``(F, F)`` >= 0, symmetric with an empty diagonal: cosine of the fits of two features; R.
        locality: ``(F,)`` in about [-0.32, 0.32], how concentrated and how far from the border a feature is; b.
        mean: ``(F,)`` of the feature over images; μ.
        std: ``(F,)`` population standard deviation over images; σ.
        constant: ``(F,)`` bool, features that do not vary; their fit is 0.
    """

    fit: Tensor
    redundancy: Tensor
    locality: Tensor
    mean: Tensor
    std: Tensor
    constant: Tensor


@dataclass
class FeatureSums:
    """Sums over images in float64; a feature f_u is the mean of its map over cells.

    Args:
        images: ``(K,)`` images of every class.
        by_class: ``(K, F)`` Σ f over the images of a class.
        squares: ``(F,)`` Σ f².
        peaks: ``(F,)`` Σ ω · largest softmax over cells, with ω_u = f_u / Σ_v f_v.
        borders: ``(F,)`` Σ ω over images whose largest cell lies on the border of the grid.
    """

    images: Tensor
    by_class: Tensor
    squares: Tensor
    peaks: Tensor
    borders: Tensor

    @classmethod
    def empty(cls, classes: int, features: int, device: torch.device) -> FeatureSums:
        """Empty sums."""
        shapes: dict[str, tuple[int, ...]] = {"images": (classes,), "by_class": (classes, features)}
        shape = {f.name: shapes.get(f.name, (features,)) for f in fields(cls)}
        return cls(**{name: torch.zeros(size, dtype=torch.float64, device=device) for name, size in shape.items()})

    def update(self, maps: Tensor, labels: Tensor) -> None:
        """Add a batch of maps ``(B, F, h, w)``, >= 0, and labels ``(B,)`` int64."""
        rows, columns = maps.shape[2:]
        cells = maps.float().flatten(2)
        features, (largest, cell) = cells.mean(2, dtype=torch.float64), cells.max(2)  # the first cell on ties
        peak = (cells - largest[:, :, None]).exp().sum(2, dtype=torch.float64).reciprocal()
        share = features / features.sum(1, keepdim=True).clamp_min(TINY)
        row, column = cell // columns, cell % columns
        border = (row == 0) | (row == rows - 1) | (column == 0) | (column == columns - 1)
        self.images.index_add_(0, labels, torch.ones_like(labels, dtype=torch.float64))
        self.by_class.index_add_(0, labels, features)
        self.squares += features.square().sum(0)
        self.peaks += (share * peak).sum(0)
        self.borders += (share * border).sum(0)

    def reduce(self) -> None:
        """Add up the sums of all processes."""
        if distributed.is_initialized():
            for f in fields(self):
                distributed.all_reduce(getattr(self, f.name))

    def constants(self) -> FeatureConstants:
        """The constants of the images so far; their order matters only for rounding."""
        images, by_class, squares, peaks, borders = (getattr(self, f.name).cpu() for f in fields(self))
        count = images.sum()
        mean = by_class.sum(0) / count
        constant = (squares / count - mean.square()) <= CONSTANT**2 * (squares / count)
        std = (squares / count - mean.square()).clamp_min(0).sqrt().masked_fill(constant, 0.0)
        fit = _correlation(images / count, by_class / count, mean, std)
        unit = torch.nn.functional.normalize(fit, dim=1)
        cosine = unit @ unit.T
        redundancy = (cosine / cosine.max().clamp_min(TINY)).clamp_min(0).fill_diagonal_(0)
        locality = _locality(peaks / count, -borders)
        return FeatureConstants(fit, redundancy, locality, mean, std, constant)


def _correlation(share: Tensor, by_class: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """``(F, K)`` Pearson correlation with the indicator of a class, over the largest; 0 where either is constant."""
    covariance = by_class.T - mean[:, None] * share
    spread = std[:, None] * (share * (1 - share)).sqrt()
    fit = torch.where(spread > 0, covariance / spread, 0.0)
    return fit / fit.abs().max().clamp_min(TINY)


def _locality(concentration: Tensor, edge: Tensor) -> Tensor:
    """b: the concentration of features away from the border; the others get the minimum."""
    scaled = _scaled(concentration)
    return _scaled(torch.where(_scaled(edge) >= 0, scaled, scaled.min()))


def _scaled(values: Tensor) -> Tensor:
    """Values clipped to the range of the largest cluster, centred, and scaled to ``LARGEST_LOCALITY``.

    As released, an outlier takes the magnitude of the bound and keeps its own sign, even if the cluster has the other
    sign. Values that then differ only by rounding become 0.
    """
    largest = _largest_cluster(values)
    bounded = values.clamp(largest.min(), largest.max()).abs() * values.sign()
    if bounded.max() - bounded.min() <= CONSTANT * values.abs().max():
        return torch.zeros_like(values)
    centred = bounded - bounded.mean()
    return centred * (LARGEST_LOCALITY / centred.abs().max())


def _largest_cluster(values: Tensor) -> Tensor:
    """The members of the largest cluster of scikit-learn's mean shift, which needs values that are not all in ties."""
    from sklearn.cluster import MeanShift, estimate_bandwidth  # slow to import, and few runs need it

    column = values[:, None].numpy()
    if (bandwidth := estimate_bandwidth(column)) > CONSTANT * float(values.abs().max()):
        labels = torch.from_numpy(MeanShift(bandwidth=bandwidth).fit(column).labels_)
        return values[labels == labels.bincount().argmax()]
    return values[values == values.mode().values]
