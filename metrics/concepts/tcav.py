"""Whether the logits of classes grow with the concepts that the classes have."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from protometry.metrics.base import ItemMean
from protometry.metrics.concepts.auc import concept_auc
from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_range, check_tensor
from protometry.metrics.primitives.intervals import lift_over, lifts_interval
from protometry.metrics.primitives.truth import check_truth


class TCAVArea(ItemMean):
    """Mean over classes of the area under the ROC curve of their TCAV scores (higher is better).

    Source: Kim et al. (2018), section 3.4: the TCAV score of class k for concept l is the share of the images of class
    k whose logit k grows along the vector of concept l, that is, whose derivative along it is above 0. Ours is to
    judge the scores: for each class, the area under the ROC curve (ties 1/2) with which they tell the concepts it has
    from those it has not. The interval is over classes, since a class has one row of the truth, which its images share;
    it does not include how vectors, also random ones, would vary with other training images.

    ``summary`` adds ``random``, the same with random concepts as in the paper, and ``lift_over_random``, paired over
    classes, with its bounds. Concepts without a vector and classes without images or with all concepts, or none, are
    left out.

    Args:
        class_concepts: ``(K, L)`` bool, the concepts that each class has, or float with NaN where unknown.

    Inputs:
        concept_derivatives: ``(B, 2, L)`` float, of the logit of the image's class along the vectors of the concepts
            and of random ones; NaN without a vector.

    Example:
        >>> metric = TCAVArea(torch.tensor([[True, False]]))
        >>> derivatives = torch.tensor([[[0.2, 0.1], [0.1, 0.2]], [[0.3, -0.1], [-0.1, 0.2]]])
        >>> metric.update(derivatives, torch.tensor([0, 0]))
        >>> metric.compute(), metric.summary()["random"]  # scores 1, 1/2 and 1/2, 1
        (tensor(1., dtype=torch.float64), 0.0)
    """

    unit = "fraction"
    higher_is_better = True
    averaged_over = "class"
    undefined = "no class has images, and concepts it has and has not that have a vector"
    class_concepts: Tensor
    growing: Tensor
    measured: Tensor

    def __init__(self, class_concepts: Tensor, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_truth("class_concepts", class_concepts, ("K", "L"))
        self.register_buffer("class_concepts", class_concepts, persistent=False)
        classes, concepts = class_concepts.shape
        for state in ("growing", "measured"):
            self.add_state(state, torch.zeros(classes, 2, concepts, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, concept_derivatives: Tensor, labels: Tensor) -> None:
        classes, concepts = self.class_concepts.shape
        check_tensor("concept_derivatives", concept_derivatives, ("B", 2, concepts), "float")
        check_tensor("labels", labels, (len(concept_derivatives),), "int64")
        check_range("labels", labels, 0, classes - 1)
        derivatives = concept_derivatives.detach()
        self.growing = self.growing.index_add(0, labels, (derivatives > 0).long())
        self.measured = self.measured.index_add(0, labels, derivatives.isfinite().long())

    def values(self) -> Tensor:
        return self._areas()[0]

    def _areas(self) -> tuple[Tensor, Tensor]:
        """``(K,)`` each, of the vectors of concepts and of random ones."""
        seen = self.measured > 0
        scores = (self.growing.double() / self.measured).nan_to_num()
        areas = []
        for which in (0, 1):
            found = seen[:, which].any(dim=0)
            area = concept_auc(scores[:, which, found].T, self.class_concepts[:, found].T).diagonal()
            areas.append(area.masked_fill(~seen[:, which].any(dim=1), torch.nan))
        return areas[0], areas[1]

    def _additions(self) -> dict[str, Any]:
        own, random = self._areas()
        lifts = own - random
        return lift_over("random", random.nanmean(), lifts.nanmean(), lifts_interval(lifts))


TCAV = MetricEntry(
    "concepts/tcav_auc",
    TCAVArea,
    Words(
        question="Do the logits of classes grow with the concepts that these have?",
        name="TCAV, area under the ROC curve",
        formula="mean over classes of the AUC with which TCAV scores tell the concepts of a class from the others; "
        "score of class k and concept l: share of the images of k with ∇o_k·v_l > 0, v_l = normal of a linear support "
        "vector machine on the mean latents of training images",
        source="[K18] 3.4, ours: the area",
        misread="A vector also points to what comes with the concept, such as the class: concepts that classes share "
        "are the better test. Compare with `random`, vectors of random images.",
    ),
    lambda facts: TCAVArea(facts.tables.class_truth.to(facts.active.device)),
    needs=("latent", "single_label", "training", "class_concepts", "concepts_class|concepts_image"),
    view="tcav",
)
