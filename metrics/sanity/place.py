"""Place: whether the cell of a unit's peak stands for its own pixels, or for the whole image.

A cell behind attention, or in a deep convolutional network, can hold what lies anywhere in the image; a picture of its
pixels then does not show what the unit has found.
"""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.chunks import image_chunks
from protometry.metrics.primitives.perturbation import outside_boxes
from protometry.metrics.sanity.against_control import AgainstControl


def kept_share(scores: Tensor, other_scores: Tensor) -> Tensor:
    """Share of its score that a unit keeps on a changed image: ``min(max(s', 0) / s, 1)``.

    Args:
        scores: ``(B, k)`` float, s.
        other_scores: ``(B, k)`` float, s'.

    Returns:
        ``(B, k)`` float64 in [0, 1]; NaN where s is not positive or either is not finite.

    Example:
        >>> kept_share(torch.tensor([[4.0, 2.0]]), torch.tensor([[3.0, -1.0]]))
        tensor([[0.7500, 0.0000]], dtype=torch.float64)
    """
    check_tensor("scores", scores, ("B", "k"), "float")
    check_tensor("other_scores", other_scores, tuple(scores.shape), "float")
    undefined = ~(scores.isfinite() & other_scores.isfinite()) | (scores <= 0)
    return (other_scores.double().clamp(min=0) / scores.double()).clamp(max=1).masked_fill(undefined, torch.nan)


def share_inside(values: Tensor, boxes: Tensor) -> Tensor:
    """Share of the sum of a map that lies in a box.

    Args:
        values: ``(B, k, H, W)`` float, >= 0.
        boxes: ``(B, k, 4)`` int64 inclusive pixels ``(x0, y0, x1, y1)``.

    Returns:
        ``(B, k)`` float64 in [0, 1]; NaN where a map is 0 everywhere or not finite.

    Example:
        >>> share_inside(torch.tensor([[[[1.0, 3.0, 0.0], [1.0, 0.0, 5.0]]]]), torch.tensor([[[0, 0, 1, 0]]]))
        tensor([[0.4000]], dtype=torch.float64)
    """
    check_tensor("values", values, ("B", "k", "H", "W"), "float")
    check_tensor("boxes", boxes, (*values.shape[:2], 4), "int64")
    shares = []
    for part, own in image_chunks(values, boxes):
        outside = torch.maximum(*outside_boxes(own, part))[:, :, 0] > 0
        inside, beyond = (part.double().masked_fill(mask, 0).sum(dim=(2, 3)) for mask in (outside, ~outside))
        whole = inside + beyond
        shares.append((inside / whole).masked_fill(~whole.isfinite(), torch.nan))  # 0 / 0 is NaN
    return torch.cat(shares)


class CellAlone(AgainstControl):
    """Mean share of its score that a unit keeps without all but the cell of its peak (higher is better).

    Inputs:
        unit_scores: ``(B, k)`` float, of the whole image.
        cell_scores: ``(B, k)`` float, of the cell alone.
        other_cell_scores: ``(B, k)`` float, of another cell alone.
    """

    unit = "fraction"
    undefined = "a unit needs a positive score on the whole image"
    higher_is_better = True

    def update(self, unit_scores: Tensor, cell_scores: Tensor, other_cell_scores: Tensor) -> None:
        self._compare(*(kept_share(unit_scores.detach(), part.detach()) for part in (cell_scores, other_cell_scores)))


class GradientInside(AgainstControl):
    """Mean share of the gradient of its score that lies in the cell of a unit's peak (higher is better).

    Inputs:
        pixel_gradients: ``(B, k, H, W)`` float >= 0, of the scores by the pixels.
        cell_boxes: ``(B, k, 4)`` int64 inclusive pixels, of the cell.
        other_boxes: ``(B, k, 4)`` int64 inclusive pixels, of another cell.
    """

    unit = "fraction"
    undefined = "the score of a unit has to depend on the pixels"
    higher_is_better = True

    def update(self, pixel_gradients: Tensor, cell_boxes: Tensor, other_boxes: Tensor) -> None:
        self._compare(*(share_inside(pixel_gradients.detach(), boxes) for boxes in (cell_boxes, other_boxes)))


CELL_ALONE = MetricEntry(
    "sanity/cell_alone",
    CellAlone,
    Words(
        question="Does a unit find in the cell of its peak what it has found in the image?",
        name="Cell alone",
        formula="mean of min(max(s′, 0) / s, 1), with s′ the score once all pixels outside the cell of the peak have "
        "the mean colour of the image",
        source="none",
        misread="An empty image may leave a unit part of its score: read `lift_over_shifted`. A unit that is a mean "
        "over cells cannot keep its score. The cell has edges that the image does not have. A larger cell shows more.",
        finding="With nothing but the cell of its peak shown, a unit keeps {value} of its score on average.",
    ),
    needs=("units",),
    view="place",
    attacked=True,
)

GRADIENT_INSIDE = MetricEntry(
    "sanity/gradient_inside",
    GradientInside,
    Words(
        question="Does the score of a unit depend on the pixels of the cell of its peak?",
        name="Gradient inside the cell",
        formula="mean share of Σ over RGB |∂s/∂x| that lies in the cell of the peak; the cell's share of the image if "
        "all pixels count alike",
        source="none",
        misread="A gradient holds for small changes; `sanity/cell_alone` makes a large one. Compare networks on grids "
        "of the same size only.",
    ),
    needs=("units",),
    view="place",
    attacked=True,
)
