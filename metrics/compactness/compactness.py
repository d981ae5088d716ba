"""Sizes of the head of a model and of single explanations, the amount a person would have to look at."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from metrics.base import ImageMean, ModelValue
from metrics.compactness.kernels import (
    features_per_class,
    global_size,
    local_size,
    negative_positive_ratio,
    number_of_features,
    sparsity,
)
from metrics.entry import MetricEntry, Words
from metrics.primitives.variants import Variant, check_variant


class GlobalSize(ModelValue):
    """Number of active units that any class uses (lower is better).

    Source: Schlinge et al. (2025), section 5.5: ``#{u : max_c |w_cu| > threshold}`` over the active units, with w =
    ``weight``. Where units are assigned to slots (ProtoPool), the units that any slot is assigned to. With
    ``variant="quanproto"`` only positive entries count.

    Args:
        threshold: entries above it are used.
        variant: reading of the formula.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        weight: ``(K, U)`` float head weights without bias, or None for a model without: every active unit counts.
        active: ``(U,)`` bool.
        presence: ``(K, U)`` 0/1 hard slot assignment, which takes the place of ``weight``; None for a model without.

    Raises:
        ValueError: if ``variant`` is unknown.

    Example:
        >>> import torch
        >>> metric = GlobalSize()
        >>> metric.update(torch.tensor([[1.0, 0.0, -0.5], [0.0, 0.0, 0.0]]), torch.tensor([True, True, True]))
        >>> metric.compute()
        tensor(2., dtype=torch.float64)
    """

    unit = "count"
    value_range = (0.0, math.inf)
    higher_is_better = False

    def __init__(self, threshold: float = 1e-3, variant: Variant = "paper", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_variant(variant)
        self.threshold = threshold
        self.variant: Variant = variant

    def update(self, weight: Tensor | None, active: Tensor, presence: Tensor | None = None) -> None:
        """Measure the model."""
        self._store(global_size(weight, active, presence, self.threshold, self.variant))


class Sparsity(ModelValue):
    """Share of head weights that are negligible (higher is better).

    Source: Schlinge et al. (2025), equation 22: ``1 - #{|w| > threshold} / |W|`` over the weights w of active units.

    Args:
        threshold: magnitude up to which a weight is negligible.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        weight: ``(K, U)`` float head weights without bias.
        active: ``(U,)`` bool; None for all.

    Example:
        >>> import torch
        >>> metric = Sparsity()
        >>> metric.update(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
        >>> metric.compute()
        tensor(0.7500, dtype=torch.float64)
    """

    unit = "fraction"
    value_range = (0.0, 1.0)
    higher_is_better = True

    def __init__(self, threshold: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.threshold = threshold

    def update(self, weight: Tensor, active: Tensor | None = None) -> None:
        """Measure the model."""
        self._store(sparsity(weight, active, self.threshold))


class NegativePositiveRatio(ModelValue):
    """Negative head weights per positive one (NPR, lower is better).

    Source: Schlinge et al. (2025), equation 23: ``#{w < -threshold} / #{w > threshold}`` over the weights w of active
    units. Undefined without a positive weight.

    Args:
        threshold: magnitude up to which a weight is negligible.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        weight: ``(K, U)`` float head weights without bias.
        active: ``(U,)`` bool; None for all.

    Example:
        >>> import torch
        >>> metric = NegativePositiveRatio()
        >>> metric.update(torch.tensor([[1.0, -1.0], [0.0, 2.0]]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    unit = "ratio"
    value_range = (0.0, math.inf)
    higher_is_better = False

    def __init__(self, threshold: float = 1e-3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.threshold = threshold

    def update(self, weight: Tensor, active: Tensor | None = None) -> None:
        """Measure the model."""
        self._store(negative_positive_ratio(weight, active, self.threshold))


class NumberOfFeatures(ModelValue):
    """Number of units with any non-zero head weight (lower is better).

    Source: Norrenbrock et al. (2025): ``#{u : w_cu != 0 for some c}`` over the active units, with w = ``weight``. There
    is no threshold, as the weights they select are exactly 0 or 1.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        weight: ``(K, U)`` float head weights without bias.
        active: ``(U,)`` bool; None for all.

    Example:
        >>> import torch
        >>> metric = NumberOfFeatures()
        >>> metric.update(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    unit = "count"
    value_range = (0.0, math.inf)
    higher_is_better = False

    def update(self, weight: Tensor, active: Tensor | None = None) -> None:
        """Measure the model."""
        self._store(number_of_features(weight, active))


class FeaturesPerClass(ModelValue):
    """Non-zero head weights per class (lower is better).

    Source: Norrenbrock et al. (2025): ``#{(c, u) : w_cu != 0} / K`` over the active units, with w = ``weight``. There
    is no threshold, as the weights they select are exactly 0 or 1.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        weight: ``(K, U)`` float head weights without bias.
        active: ``(U,)`` bool; None for all.

    Example:
        >>> import torch
        >>> metric = FeaturesPerClass()
        >>> metric.update(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
        >>> metric.compute()
        tensor(1.5000, dtype=torch.float64)
    """

    unit = "count"
    value_range = (0.0, math.inf)
    higher_is_better = False

    def update(self, weight: Tensor, active: Tensor | None = None) -> None:
        """Measure the model."""
        self._store(features_per_class(weight, active))


class LocalSize(ImageMean):
    """Mean number of units that matter on an image (lower is better).

    Source: Schlinge et al. (2025), equations 20 and 21: ``#{u active : s_u / max s > threshold}`` with s = ``scores``,
    compared in float64. Undefined where the largest active score is not positive.

    Args:
        active: ``(U,)`` bool; None for all.
        threshold: share of the largest score.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        scores: ``(B, U)`` float.

    Example:
        >>> import torch
        >>> metric = LocalSize()
        >>> metric.update(torch.tensor([[2.0, 1.0, 0.3, 0.19], [1.0, 0.0, 0.0, 0.0]]))  # 3 and 1
        >>> metric.compute()
        tensor(2., dtype=torch.float64)
    """

    unit = "count"
    value_range = (1.0, math.inf)
    higher_is_better = False
    active: Tensor | None

    def __init__(self, active: Tensor | None = None, threshold: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.register_buffer("active", active, persistent=False)
        self.threshold = threshold

    def update(self, scores: Tensor) -> None:
        """Add a batch."""
        self._accumulate(local_size(scores, self.active, self.threshold))


GLOBAL_SIZE = MetricEntry(
    "compactness/global_size",
    GlobalSize,
    Words(
        question="How many units does the model use?",
        name="Global size",
        formula="number of active units u with max_c abs(w_cu) > 10⁻³",
        source="[S25] 5.5",
        misread="It counts units, not different ones: two copies of a prototype are two. Negative weights count, too.",
    ),
    lambda facts: GlobalSize(variant=facts.variant),
)


SPARSITY = MetricEntry(
    "compactness/sparsity",
    Sparsity,
    Words(
        question="How many weights are zero?",
        name="Sparsity",
        formula="1 − #{abs(w) > 10⁻³} / #{w} over the weights of active units",
        source="[S25] 22",
        misread="A head without small weights has 0 although pruning removed half of its units: pruned columns are "
        "left out.",
    ),
    needs=("weight",),
)


NEGATIVE_POSITIVE_RATIO = MetricEntry(
    "compactness/npr",
    NegativePositiveRatio,
    Words(
        question="How many weights speak against a class, for each that speaks for one?",
        name="Negative-positive ratio",
        formula="#{w < −10⁻³} / #{w > 10⁻³}",
        source="[S25] 23",
        misread="It depends on the number of classes: K − 1 for a head with one positive class per unit. 0 may mean "
        "that the head cannot be negative (PIPNet).",
    ),
    needs=("weight",),
)


LOCAL_SIZE = MetricEntry(
    "compactness/local_size",
    LocalSize,
    Words(
        question="How many units speak in one image?",
        name="Local size",
        formula="mean number of active units with s_u / max s > 0.1",
        source="[S25] 20, 21",
        misread="It is relative to the best unit: scores with an offset (as of a logarithm of distances) make all "
        "units count.",
    ),
    lambda facts: LocalSize(facts.active),
)


NUMBER_OF_FEATURES = MetricEntry(
    "compactness/number_of_features",
    NumberOfFeatures,
    Words(
        question="How many units have any weight?",
        name="Number of features",
        formula="number of active units with any weight ≠ 0",
        source="[N25]",
        misread="There is no threshold: a trained dense head uses all units.",
    ),
    needs=("weight",),
)


FEATURES_PER_CLASS = MetricEntry(
    "compactness/features_per_class",
    FeaturesPerClass,
    Words(
        question="How many units is a class made of?",
        name="Features per class",
        formula="#{(c, u) : w_cu ≠ 0} / K",
        source="[N25]",
        misread="As above; for a model with shared units it says nothing about how many a decision needs.",
    ),
    needs=("weight",),
)
