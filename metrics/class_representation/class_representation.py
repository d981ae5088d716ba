"""What classes are represented by: how similar they are to each other, and what their features are like."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metrics.base import AveragedOver, ImageMean, ItemMean, ModelValue
from metrics.class_representation.kernels import (
    _class_independence_compute,
    _class_independence_update,
    _grounding_sums,
    contrastiveness,
    scale_invariant_diversity,
)
from metrics.entry import MetricEntry, Words
from metrics.facts import Facts
from metrics.kept_scores import KeptScores
from metrics.primitives.checks import check_at_least, check_tensor


class StructuralGrounding(ModelValue):
    """Whether classes that look alike have similar weights (higher is better).

    Source: Norrenbrock et al. (2025): ``Σ S_model / Σ S_gt`` over the ``pairs`` pairs of classes with the largest S_gt,
    the cosine similarity of the rows of ``class_attributes``; S_model is that of the rows of ``weight``, signs kept.
    A pair in which a class has no attributes or no weights is left out of both sums and counted in ``skipped``.

    Args:
        class_attributes: ``(K, A)`` float >= 0, frequency of each attribute in each class.
        pairs: number of pairs; all pairs if there are fewer.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        weight: ``(K, U)`` float head weights without bias.
        active: ``(U,)`` bool; None for all.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> metric = StructuralGrounding(torch.tensor([[1.0, 0.0], [4.0, 3.0], [0.0, 1.0]]), pairs=2)
        >>> metric.update(torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]))
        >>> metric.compute()  # (0.5 + 0.707) / (0.8 + 0.6)
        tensor(0.8622, dtype=torch.float64)
    """

    unit = "ratio"
    higher_is_better = True
    class_attributes: Tensor
    pairs_left_out: Tensor

    def __init__(self, class_attributes: Tensor, pairs: int = 25, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_tensor("class_attributes", class_attributes, ("K", "A"), "float")
        check_at_least("pairs", pairs, 1)
        self.pairs = pairs
        self.register_buffer("class_attributes", class_attributes, persistent=False)
        self.add_state("pairs_left_out", torch.zeros((), dtype=torch.int64), dist_reduce_fx="max")

    def update(self, weight: Tensor, active: Tensor | None = None) -> None:
        """Measure the model."""
        used = weight if active is None else weight.masked_fill(~active, 0)
        value, self.pairs_left_out = _grounding_sums(used, self.class_attributes, self.pairs)
        self._store(value)

    def _estimate(self) -> tuple[Tensor, Tensor, Tensor]:
        value, n, _ = super()._estimate()
        return value, n, self.pairs_left_out


class Contrastiveness(KeptScores):
    """Mean over units of how clearly their scores fall into two groups, present and absent (higher is better).

    Source: Norrenbrock et al. (2025), as released: one minus the overlap of the two normals, without their weights, of
    a Gaussian mixture fitted to the scores s of a unit, s = ``scores`` on the **training** images without augmentation;
    see :func:`metrics.functional.contrastiveness` for the fit. Undefined for a unit with equal scores on all images or
    one that is not finite.

    The scores of all images are kept, as float32, because a mixture is fitted to all of them: N·U·4 bytes for the U
    active units on every process once it synchronises, 1.2 MB for 5 994 images and 50 units, up to twice as much while
    images are added.

    Args:
        num_units: number of all units.
        active: ``(num_units,)`` bool, units to measure; None for all.
        max_iterations: of the fit, at least 1.
        tolerance: of the fit, in mean log-likelihood.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        scores: ``(B, num_units)`` float.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> metric = Contrastiveness(num_units=1)
        >>> metric.update(torch.tensor([[-3.1], [-3.0], [-2.9]]))
        >>> metric.update(torch.tensor([[2.9], [3.0], [3.1]]))
        >>> metric.compute()
        tensor(1., dtype=torch.float64)
    """

    unit = "fraction"
    value_range = (0.0, 1.0)
    averaged_over: AveragedOver = "unit"
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
        units = _checked(num_units, active).nonzero().squeeze(1)
        super().__init__(len(units), **kwargs)
        check_at_least("max_iterations", max_iterations, 1)
        self.num_units = num_units
        self.max_iterations = max_iterations
        self.tolerance = tolerance
        self.register_buffer("units", units, persistent=False)

    def update(self, scores: Tensor) -> None:
        """Add a batch."""
        check_tensor("scores", scores, ("B", self.num_units), "float")
        self._append(scores.detach().float()[:, self.units])

    def values(self) -> Tensor:
        """``(num_units,)`` float64, NaN where undefined or not measured."""
        values = contrastiveness(self.scores, self.max_iterations, self.tolerance)
        return values.new_full((self.num_units,), torch.nan).index_copy(0, self.units, values)


class ClassIndependence(ItemMean):
    """Mean over units of how little of their activation comes from a single class (generality, higher is better).

    Source: Norrenbrock et al. (2025), as released: ``1 − max_c Σ_{y = c} f̃ / Σ f̃`` with f̃ = s minus the minimum of s
    over all images, s = ``scores`` on the **training** images without augmentation. Undefined for a unit with equal
    scores on all images or one that is not finite.

    Args:
        num_units: U.
        num_classes: K.
        active: ``(U,)`` bool, units to measure; None for all.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        scores: ``(B, U)`` float.
        labels: ``(B,)`` int64 in ``[0, K)``.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> metric = ClassIndependence(num_units=1, num_classes=2)
        >>> metric.update(torch.tensor([[1.0], [3.0], [2.0], [1.0]]), torch.tensor([0, 0, 1, 1]))
        >>> metric.compute()  # 1 - 2/3
        tensor(0.3333, dtype=torch.float64)
    """

    unit = "fraction"
    value_range = (0.0, 1.0)
    averaged_over: AveragedOver = "unit"
    higher_is_better = True
    active: Tensor
    sums: Tensor
    counts: Tensor
    minimum: Tensor
    maximum: Tensor

    def __init__(self, num_units: int, num_classes: int, active: Tensor | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_at_least("num_classes", num_classes, 1)
        self.value_range = (0.0, 1 - 1 / num_classes)
        self.num_units, self.num_classes = num_units, num_classes
        self.register_buffer("active", _checked(num_units, active), persistent=False)
        self.add_state("sums", torch.zeros(num_classes, num_units, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(num_classes, dtype=torch.int64), dist_reduce_fx="sum")
        edge = torch.full((num_units,), torch.inf, dtype=torch.float64)
        self.add_state("minimum", edge, dist_reduce_fx="min")
        self.add_state("maximum", -edge, dist_reduce_fx="max")

    def update(self, scores: Tensor, labels: Tensor) -> None:
        """Add a batch."""
        check_tensor("scores", scores, ("B", self.num_units), "float")
        sums, counts, minimum, maximum = _class_independence_update(scores, labels, self.num_classes)
        self.sums, self.counts = self.sums + sums, self.counts + counts
        self.minimum, self.maximum = self.minimum.minimum(minimum), self.maximum.maximum(maximum)

    def values(self) -> Tensor:
        """``(U,)`` float64, NaN where undefined or not measured."""
        values = _class_independence_compute(self.sums, self.counts, self.minimum, self.maximum)
        return values.masked_fill(~self.active, torch.nan)


class ScaleInvariantDiversity(ImageMean):
    """Mean over images of how far the features of the predicted class look at different places (SID@k).

    Source: Norrenbrock et al. (2025), as released: ``1/k Σ_cells max_u P_u`` over the k features u with the largest
    signed weights of the predicted class among its non-zero ones (ties: lower index); P_u is the softmax over cells of
    the map divided by its mean magnitude, which is at least 1e-5. 1/k where all look at the same place, and 1 where no
    two share one (higher is better). Undefined for an image whose predicted class has fewer than k non-zero weights.

    Args:
        weight: ``(K, U)`` float head weights without bias, 0 for units that are not active.
        k: number of features, at least 1.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        unit_maps: ``(B, U, h, w)`` float, maps of all units.
        logits: ``(B, K)`` float.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> metric = ScaleInvariantDiversity(torch.ones(1, 2), k=2)
        >>> metric.update(torch.tensor([[[[2.0, 0.0]], [[0.0, 2.0]]]]), torch.tensor([[1.0]]))
        >>> metric.compute()
        tensor(0.8808, dtype=torch.float64)
    """

    unit = "fraction"
    value_range = (0.2, 1.0)
    higher_is_better = True
    weight: Tensor

    def __init__(self, weight: Tensor, k: int = 5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_tensor("weight", weight, ("K", "U"), "float")
        check_at_least("k", k, 1)
        self.k = k
        self.value_range = (1 / k, 1.0)
        self.register_buffer("weight", weight, persistent=False)

    def update(self, unit_maps: Tensor, logits: Tensor) -> None:
        """Add a batch."""
        check_tensor("logits", logits, (len(unit_maps), len(self.weight)), "float")
        values = scale_invariant_diversity(unit_maps, self.weight, logits.argmax(dim=1), self.k)
        self._accumulate(values, logits.isfinite().all(dim=1))


def _checked(num_units: int, active: Tensor | None) -> Tensor:
    """The units to measure, ``(num_units,)`` bool."""
    check_at_least("num_units", num_units, 1)
    if active is None:
        return torch.ones(num_units, dtype=torch.bool)
    check_tensor("active", active, (num_units,), "bool")
    return active.clone()


def _build(facts: Facts) -> StructuralGrounding:
    assert facts.class_attributes is not None
    return StructuralGrounding(facts.class_attributes)


STRUCTURAL_GROUNDING = MetricEntry(
    "class_representation/structural_grounding",
    StructuralGrounding,
    Words(
        question="Are classes with similar attributes made of similar units?",
        name="Structural grounding",
        formula="Σ cos(w_c, w_c′) / Σ cos(a_c, a_c′) over the 25 pairs of classes with the most similar attributes a",
        source="[N25]",
        misread="A model that gives all classes the same weights has more than 1; one feature per class alone has 0 by "
        "construction.",
    ),
    _build,
    needs=("weight", "class_attributes", "single_label"),
)


CONTRASTIVENESS = MetricEntry(
    "class_representation/contrastiveness",
    Contrastiveness,
    Words(
        question="Do the scores of a unit fall into two groups?",
        name="Contrastiveness",
        formula="mean over units of 1 − overlap of the two normals fitted to their scores on the training images",
        source="released code of [N25]",
        misread="Two groups, whatever they are: any sparse ReLU unit has a group of zeros. A single Gaussian has 0.55, "
        "not 0.",
    ),
    lambda facts: Contrastiveness(len(facts.active), (facts.features != 0).any(dim=0)),
    needs=("weight", "features", "training"),
    view="training",
)


CLASS_INDEPENDENCE = MetricEntry(
    "class_representation/class_independence",
    ClassIndependence,
    Words(
        question="Is a unit shared by many classes?",
        name="Class independence",
        formula="mean over units of 1 − the largest share of a class in their activation on the training images",
        source="released code of [N25]",
        misread="Noise is most independent; the best value is 1 − 1/K, so few classes lower it. A class detector has "
        "0.",
    ),
    lambda facts: ClassIndependence(len(facts.active), facts.num_classes, (facts.features != 0).any(dim=0)),
    needs=("weight", "features", "training", "single_label"),
    view="training",
)


SCALE_INVARIANT_DIVERSITY = MetricEntry(
    "class_representation/sid@5",
    ScaleInvariantDiversity,
    Words(
        question="Do the units of a decision look at different places?",
        name="Scale-invariant diversity",
        formula="mean of 1/5 Σ over cells of max_u softmax(map_u / mean abs(map_u)), u the 5 largest weights of the "
        "predicted class",
        source="released code of [N25]",
        misread="1/5 is the worst value, not 0. Five noisy maps look at different places; it does not say that these "
        "are parts.",
    ),
    lambda facts: ScaleInvariantDiversity(facts.features),
    needs=("weight", "five_features"),
)
