"""Faithfulness by deletion and insertion: how fast a unit loses its score in the order of its map."""

from __future__ import annotations

import torch
from torch import Tensor

from protometry.metrics.entry import MetricEntry, Words
from protometry.metrics.primitives.checks import check_at_least, check_tensor
from protometry.metrics.sanity.against_control import AgainstControl


def kept_area(scores: Tensor) -> Tensor:
    """Area under the share of its score that a unit keeps while an image is taken away.

    Source: Petsiuk et al. (2018), section 4.1, for the score of a unit instead of the probability of a class:
    ``Σ_j (r_j + r_(j+1)) / 2S`` with ``r_j = min(max(s_j, 0) / s_0, 1)``, s = ``scores`` and S + 1 columns. Deviations:
    scores are relative to the whole image, and S steps are much larger than theirs. The area under the curve of
    insertion is the same, with the least relevant pixels taken away first.

    Args:
        scores: ``(B, k, S + 1)`` float, with 0, 1/S, 2/S, ... and all of the pixels taken away; S is at least 1.

    Returns:
        ``(B, k)`` float64 in [0, 1]; NaN where the score of the whole image is not positive or a score is not finite.

    Example:
        >>> kept_area(torch.tensor([[[4.0, 2.0, -1.0]]]))  # (1 + 1/2) / 4 + (1/2 + 0) / 4
        tensor([[0.5000]], dtype=torch.float64)
    """
    check_tensor("scores", scores, ("B", "k", "S + 1"), "float")
    check_at_least("steps", scores.shape[2] - 1, 1)
    whole = scores[:, :, :1].double()
    shares = (scores.double().clamp(min=0) / whole).clamp(max=1)
    undefined = ~scores.isfinite().all(dim=2) | (whole.squeeze(2) <= 0)
    return (torch.trapezoid(shares, dim=2) / (scores.shape[2] - 1)).masked_fill(undefined, torch.nan)


class Deletion(AgainstControl):
    """Mean area that units keep while the pixels are taken away that their maps mark most (lower is better).

    Inputs:
        removal_scores: ``(B, k, S + 1)`` float, as for :func:`protometry.metrics.functional.kept_area`.
        shifted_removal_scores: the same in the order of a shifted map.
    """

    unit = "fraction"
    undefined = "a unit needs a positive score on the whole image and a map that is not flat"
    higher_is_better = False

    def update(self, removal_scores: Tensor, shifted_removal_scores: Tensor) -> None:
        check_tensor("shifted_removal_scores", shifted_removal_scores, tuple(removal_scores.shape), "float")
        self._compare(kept_area(removal_scores.detach()), kept_area(shifted_removal_scores.detach()))


class Insertion(Deletion):
    """Mean area that units keep while the pixels are taken away that their maps mark least (higher is better)."""

    higher_is_better = True


DELETION = MetricEntry(
    "sanity/deletion",
    Deletion,
    Words(
        question="Does a unit lose its score without the pixels that its map marks?",
        name="Deletion",
        formula="mean area under min(max(s′, 0) / s, 1) with 0, 1/8, … 8/8 of the pixels replaced by the mean colour "
        "of the image, the most relevant first; 1/16 where the first eighth takes all of the score",
        source="[P18] 4.1, of units",
        misread="An empty image may leave a unit part of its score, which keeps the area above 1/16, and a unit that "
        "any change silences is near 1/16 whatever its map is: read `lift_over_shifted`, negative for a good map.",
        finding="Without the pixels that its map marks most, a unit keeps {value} of its score on average.",
    ),
    needs=("units", "explainer"),
    view="deletion",
    attacked=True,
)

INSERTION = MetricEntry(
    "sanity/insertion",
    Insertion,
    Words(
        question="Do the pixels that its map marks suffice for the score of a unit?",
        name="Insertion",
        formula="as deletion, the least relevant first; 15/16 where the last eighth holds all of the score",
        source="[P18] 4.1, of units",
        misread="The pixels are shown on a plain ground, not on a blurred image as in the paper. What an empty image "
        "leaves a unit raises it: read `lift_over_shifted`.",
        finding="Without the pixels that its map marks least, a unit keeps {value} of its score on average.",
    ),
    needs=("units", "explainer"),
    view="insertion",
    attacked=True,
)
