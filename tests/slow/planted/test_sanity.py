"""Planted truth of deletion and insertion, where it takes many passes."""

import pytest
import torch
from torch.nn import functional as F

from protometry.explanations import Upsample
from protometry.explanations.random_maps import Random
from tests.planted.scenes import CLASSES
from tests.planted.test_sanity import STEPS, sanity


class Late(Upsample):
    """Random values, and on the part that a unit reads a value that so many eighths of the pixels exceed."""

    def __init__(self, eighths):
        super().__init__()
        self.value = 1 - (eighths + 0.5) / STEPS

    def _maps(self, model, question):
        part = super()._maps(model, question) > 0
        noise = torch.rand(part.shape, generator=torch.Generator().manual_seed(0))
        return torch.where(part, self.value, noise)


def test_the_later_a_map_marks_what_a_unit_reads_the_worse_it_is():
    """A part has less than an eighth of the pixels, so that all of the score goes with one step: the area is known."""
    for eighths in (0, 2, 5, 7):  # 0 is the best there is, 7 the worst
        metrics = sanity(Late(eighths)).metrics
        truth = (eighths + 0.5) / STEPS
        assert metrics["sanity/deletion"]["value"] == pytest.approx(truth)
        assert metrics["sanity/insertion"]["value"] == pytest.approx(1 - truth)
        if eighths in (0, 7):  # with pixels taken away in any order, the last one of the part keeps the score
            name = "deletion" if eighths == 0 else "insertion"
            assert metrics[f"sanity/{name}"]["lift_over_shifted_high"] < -0.4


class Uneven(Random):
    """A random value for each pixel in the maps of the last units, and for each square of 16×16 in the others."""

    def _maps(self, model, question):
        fine = super()._maps(model, question)
        coarse = F.interpolate(fine[:, None, ::16, ::16], fine.shape[1:])[:, 0]
        return torch.where(question.ids[:, None, None] >= CLASSES, fine, coarse)


@pytest.mark.parametrize("explainer", [Random("smooth"), Uneven()])
def test_random_maps_are_at_chance(explainer):
    """Within four standard errors."""
    for entry in sanity(explainer).metrics.values():
        low, high = entry["lift_over_shifted_low"], entry["lift_over_shifted_high"]
        assert low - (high - low) / 2 < 0 < high + (high - low) / 2
