"""Global importance of concepts: whether the classes that a model connects with a concept have it."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from metrics.base import AveragedOver, ItemMean
from metrics.functional.concept_importance import Axis, Kind, concept_global_importance
from metrics.functional.primitives.checks import check_choice, check_tensor


class ConceptGlobalImportance(ItemMean):
    """Mean cosine between what concepts mean to the classes and what annotators say of the classes (higher is better).

    Source: Aysel et al. (2025), CGIM of equations 3 to 8, see :func:`metrics.functional.concept_global_importance`. The
    mean concept values of a class are those of its images that are classified correctly; a class without one is left
    out of the concepts of kinds 2 and 3 and is undefined itself. Images whose scores are not finite are left out and
    counted. Kind 1 reads no image.

    The annotation is >= 0, so that the sign of the cosine follows the mean of the other vector: ``summary`` adds
    ``centered``, the mean of Pearson's correlations.

    Args:
        weight: ``(K, L)`` float head weights.
        annotation: ``(K, L)`` float in 0..1, strength of every concept in every class; NaN throughout a column that
            takes no part and is undefined.
        kind: 1 (weights), 2 (mean concept values) or 3 (their product).
        axis: ``"concept"`` for one value per concept, ``"class"`` for one per class.
        centered: average the correlations instead of the cosines.
        columns: what a column is, ``"unit"`` where several units may stand for one concept.
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        scores: ``(B, L)`` float concept values.
        logits: ``(B, K)`` float.
        labels: ``(B,)`` int64.

    Raises:
        ValueError: if an argument differs from the above, such as a table of concepts that does not fit the classes.

    Example:
        >>> metric = ConceptGlobalImportance(torch.tensor([[3.0], [4.0], [0.0]]), torch.tensor([[1.0], [0.0], [0.0]]))
        >>> metric.update(torch.ones(1, 1), torch.eye(3)[:1], torch.tensor([0]))
        >>> metric.compute()
        tensor(0.6000, dtype=torch.float64)
    """

    unit = "cosine"
    value_range = (-1.0, 1.0)
    reads = ("scores", "logits", "labels")
    higher_is_better = True
    weight: Tensor
    annotation: Tensor
    known: Tensor
    score_sums: Tensor
    counts: Tensor

    def __init__(
        self,
        weight: Tensor,
        annotation: Tensor,
        kind: Kind = 1,
        axis: Axis = "concept",
        centered: bool = False,
        columns: Literal["concept", "unit"] = "concept",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_tensor("weight", weight, ("K", "L"), "float")
        check_tensor("annotation", annotation, tuple(weight.shape), "float")
        check_choice("axis", axis, get_args(Axis))
        if kind not in get_args(Kind):
            raise ValueError(f"Expected argument `kind` to be 1, 2 or 3, but got {kind!r}.")
        self.name = f"cgim{kind}_{axis}"
        self.kind: Kind = kind
        self.axis: Axis = axis
        self.centered = centered
        self.averaged_over: AveragedOver = "class" if axis == "class" else columns
        self.register_buffer("known", ~annotation.isnan().all(dim=0), persistent=False)
        self.register_buffer("weight", weight.detach().clone(), persistent=False)
        self.register_buffer("annotation", annotation.detach().clone(), persistent=False)
        self.add_state("score_sums", torch.zeros(tuple(weight.shape), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(len(weight), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, scores: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Add a batch."""
        classes, concepts = self.weight.shape
        check_tensor("scores", scores, ("B", concepts), "float")
        check_tensor("logits", logits, (len(scores), classes), "float")
        check_tensor("labels", labels, (len(scores),), "int64")
        broken = ~(scores.isfinite().all(dim=1) & logits.isfinite().all(dim=1))
        counted = (logits.argmax(dim=1) == labels) & ~broken
        values = scores.detach().double().masked_fill(~counted[:, None], 0)
        self.score_sums = self.score_sums.index_add(0, labels, values)
        self.counts = self.counts.index_add(0, labels, counted.long())
        self.dropped = self.dropped + broken.sum()

    def values(self) -> Tensor:
        """``(L,)`` or ``(K,)`` float64, NaN where undefined."""
        return self._values(self.centered)

    def summary(self) -> dict[str, float]:
        """The value with its interval, and the mean of the defined correlations.

        Returns:
            What :meth:`SummaryMetric.summary` returns, and ``centered``.
        """
        summary = super().summary()
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync):
            return {**summary, "centered": float(self._values(centered=True).nanmean())}

    def _values(self, centered: bool) -> Tensor:
        means = self.score_sums / self.counts[:, None]  # 0 / 0 where no image is classified correctly
        weight, table, means = (tensor[:, self.known] for tensor in (self.weight, self.annotation, means))
        found = concept_global_importance(weight, table, means, self.kind, self.axis, centered)
        if self.axis == "class":
            return found
        return found.new_full(self.known.shape, torch.nan).masked_scatter(self.known, found)
