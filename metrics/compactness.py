"""How much a person would have to look at: sizes of the head and of single explanations."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from metrics.functional.compactness import (
    features_per_class,
    global_size,
    local_size,
    negative_positive_ratio,
    number_of_features,
    sparsity,
)
from metrics.functional.primitives.variants import Variant, check_variant
from metrics.image_mean import ImageMean
from metrics.model_value import ModelValue


class GlobalSize(ModelValue):
    """Number of active units that any class uses.

    Source and definition: :func:`metrics.functional.global_size`.

    Args:
        threshold: entries above it are used.
        variant: reading of the formula.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if ``variant`` is unknown.

    Example:
        >>> import torch
        >>> metric = GlobalSize()
        >>> metric.update(torch.tensor([[1.0, 0.0, -0.5], [0.0, 0.0, 0.0]]), torch.tensor([True, True, True]))
        >>> metric.compute()
        tensor(2., dtype=torch.float64)
    """

    name = "global_size"
    unit = "count"
    reads = ("weight", "active", "presence")
    higher_is_better = False

    def __init__(self, threshold: float = 1e-3, variant: Variant = "paper", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_variant(variant)
        self.threshold = threshold
        self.variant: Variant = variant

    def update(self, weight: Tensor | None, active: Tensor, presence: Tensor | None = None) -> None:
        """Measure the model.

        Args:
            weight: ``(K, U)`` float, or None for a model without head weights.
            active: ``(U,)`` bool.
            presence: ``(K, U)`` 0/1 hard slot assignment, or None.
        """
        self._store(global_size(weight, active, presence, self.threshold, self.variant))


class Sparsity(ModelValue):
    """Share of head weights that are negligible.

    Source and definition: :func:`metrics.functional.sparsity`.

    Args:
        threshold: magnitude up to which a weight is negligible.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> metric = Sparsity()
        >>> metric.update(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
        >>> metric.compute()
        tensor(0.7500, dtype=torch.float64)
    """

    name = "sparsity"
    unit = "fraction"
    reads = ("weight", "active")
    higher_is_better = True

    def __init__(self, threshold: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.threshold = threshold

    def update(self, weight: Tensor, active: Tensor | None = None) -> None:
        """Measure the model.

        Args:
            weight: ``(K, U)`` float.
            active: ``(U,)`` bool; None for all.
        """
        self._store(sparsity(weight, active, self.threshold))


class NegativePositiveRatio(ModelValue):
    """Negative head weights per positive one.

    Source and definition: :func:`metrics.functional.negative_positive_ratio`.

    Args:
        threshold: magnitude up to which a weight is negligible.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> metric = NegativePositiveRatio()
        >>> metric.update(torch.tensor([[1.0, -1.0], [0.0, 2.0]]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "npr"
    unit = "ratio"
    reads = ("weight", "active")
    higher_is_better = False

    def __init__(self, threshold: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.threshold = threshold

    def update(self, weight: Tensor, active: Tensor | None = None) -> None:
        """Measure the model.

        Args:
            weight: ``(K, U)`` float.
            active: ``(U,)`` bool; None for all.
        """
        self._store(negative_positive_ratio(weight, active, self.threshold))


class NumberOfFeatures(ModelValue):
    """Number of units with any non-zero head weight.

    Source and definition: :func:`metrics.functional.number_of_features`.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> metric = NumberOfFeatures()
        >>> metric.update(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    name = "number_of_features"
    unit = "count"
    reads = ("weight", "active")
    higher_is_better = False

    def update(self, weight: Tensor, active: Tensor | None = None) -> None:
        """Measure the model.

        Args:
            weight: ``(K, U)`` float.
            active: ``(U,)`` bool; None for all.
        """
        self._store(number_of_features(weight, active))


class FeaturesPerClass(ModelValue):
    """Non-zero head weights per class.

    Source and definition: :func:`metrics.functional.features_per_class`.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> metric = FeaturesPerClass()
        >>> metric.update(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
        >>> metric.compute()
        tensor(1.5000, dtype=torch.float64)
    """

    name = "features_per_class"
    unit = "count"
    reads = ("weight", "active")
    higher_is_better = False

    def update(self, weight: Tensor, active: Tensor | None = None) -> None:
        """Measure the model.

        Args:
            weight: ``(K, U)`` float.
            active: ``(U,)`` bool; None for all.
        """
        self._store(features_per_class(weight, active))


class LocalSize(ImageMean):
    """Mean number of units that matter on an image.

    Source and definition: :func:`metrics.functional.local_size`. Interval: normal over images.

    Args:
        active: ``(U,)`` bool; None for all.
        threshold: share of the largest score.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> metric = LocalSize()
        >>> metric.update(torch.tensor([[2.0, 1.0, 0.3, 0.19], [1.0, 0.0, 0.0, 0.0]]))
        >>> metric.compute()
        tensor(2., dtype=torch.float64)
    """

    name = "local_size"
    unit = "count"
    reads = ("scores",)
    higher_is_better = False
    active: Tensor | None

    def __init__(self, active: Tensor | None = None, threshold: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_buffer("active", active, persistent=False)
        self.threshold = threshold

    def update(self, scores: Tensor) -> None:
        """Add a batch.

        Args:
            scores: ``(B, U)`` float.
        """
        self._accumulate(local_size(scores, self.active, self.threshold))
