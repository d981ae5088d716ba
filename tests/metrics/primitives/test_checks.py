import pytest
import torch

from protometry.metrics.complexity.part_coverage_consistency import part_coverage_counts
from protometry.metrics.functional import (
    background_overlap,
    inside_outside_relevance_difference,
    object_overlap,
    visualization_activation_change,
    visualization_location_change,
)

CLIPPED = torch.tensor([[[[0.0, 2.0], [0.0, 0.0]]]])
MASKS = torch.tensor([[[True, False], [True, False]]])


@pytest.mark.parametrize(
    "kernel",
    [
        lambda saliency: object_overlap(saliency, MASKS),
        lambda saliency: background_overlap(saliency, MASKS),
        lambda saliency: inside_outside_relevance_difference(saliency, MASKS),
        lambda saliency: visualization_location_change(CLIPPED, saliency),
        lambda saliency: visualization_activation_change(saliency, CLIPPED),
        lambda saliency: part_coverage_counts(
            saliency, torch.tensor([[0]]), torch.zeros(1, 1, 2), torch.tensor([[True]]), 1
        )[0],
    ],
)
def test_saliency_that_is_not_clipped_is_refused_but_not_what_is_undefined(kernel):
    signed = CLIPPED.clone()
    signed[..., 0, 0] = -1
    with pytest.raises(ValueError, match="saliency` to be clipped, but got negative values"):
        kernel(signed)
    kernel(signed.masked_fill(signed < 0, -torch.inf))
