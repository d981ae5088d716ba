"""Relevance through shortcuts that are cropped, and what it says of a BagNet, whose cells see little."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn

from protometry.explanations.explainer import Targets
from protometry.explanations.relevance.prp_and_lrp import LRP, PRP
from protometry.explanations.relevance.prp_and_lrp_rules import uncropped
from protometry.explanations.relevance.recorder import record
from protometry.lightning_modules import BagNet
from tests.explanations.backbones import UnitReader, moved_statistics, taped
from tests.explanations.small_models import rand

close = torch.testing.assert_close
FIELDS = [9, 17, 33]
SIZE = (40, 56)
IMAGES = rand(2, 3, *SIZE)
CLASSES = torch.tensor([[0, 3], [2, 1]])


@cache
def shared(field):
    """Built once for the tests that only read it; narrow, with the blocks of the published network."""
    torch.manual_seed(field)
    model = BagNet(num_classes=4, image_size=SIZE, backbone={"name": f"bagnet{field}", "width": 16})
    with torch.no_grad():
        model.linear.bias.copy_(torch.linspace(-3, 3, 4))
    return moved_statistics(model)


def explained(explainer, model, kind):
    return explainer.attribute(model, IMAGES, Targets(kind, CLASSES))


@pytest.mark.parametrize("field", FIELDS)
def test_classes_sum_to_the_logit_and_are_the_units_times_the_logit(field):
    """Bias included: BagNet has it in every cell, so that nothing is left over in the head."""
    logits = shared(field)(IMAGES).logits.gather(1, CLASSES).detach()
    maps = explained(LRP(), shared(field), "class")
    close(maps.sum((2, 3)), logits, rtol=1e-4, atol=0)
    close(maps, explained(PRP(), shared(field), "unit") * logits[:, :, None, None], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("field", FIELDS)
def test_relevance_of_a_cell_stays_in_its_field(field):
    model = shared(field)
    output, tape = record(model, IMAGES)
    row, col = output.latent.shape[2] - 1, output.latent.shape[3] - 1
    start = torch.zeros_like(output.latent)
    start[:, :, row, col] = output.latent[:, :, row, col]
    pixels = tape.backward(start.clone())[0]
    x0, y0, x1, y1 = model.geometry.cell_box(row, col, "receptive_field")
    inside = pixels[:, y0 : y1 + 1, x0 : x1 + 1]
    close(inside.sum((1, 2)), start.sum((1, 2, 3)), rtol=1e-4, atol=0)
    assert (inside[:, [0, -1]] != 0).any()
    assert pixels.count_nonzero() == inside.count_nonzero()


class Cut(nn.Module):
    """A part of its input."""

    def __init__(self, *index):
        super().__init__()
        self.index = index if len(index) > 1 else index[0]

    def forward(self, x):
        return x[self.index]


ALL = slice(None)


class TestCrop:
    def test_what_was_cut_off_gets_nothing(self):
        relevance = torch.tensor([[[[1.0, 2.0]]]])
        (whole,) = uncropped(relevance, (ALL, ALL, slice(1, 2), slice(2)), torch.ones(1, 1, 2, 3))
        assert whole.tolist() == [[[[0, 0, 0], [1, 2, 0]]]]

    @pytest.mark.parametrize("index", [(ALL, ALL, slice(3), slice(4)), (ALL, slice(2), slice(1, None, 2)), (ALL,)])
    def test_conservation(self, index):
        torch.manual_seed(0)
        backbone = nn.Sequential(
            nn.Conv2d(3, 5, 3), nn.ReLU(), Cut(*index), nn.Conv2d(5 if len(index) != 3 else 2, 4, 1)
        )
        latent, tape = taped(backbone, rand(2, 3, 8, 10))
        start = rand(*latent.shape, seed=1) * latent.abs()
        close(tape.backward(start.clone())[0].sum((1, 2)), start.sum((1, 2, 3)), rtol=1e-4, atol=0)

    def test_cropped_pixels(self):
        """Only what is left is seen: the map equals the cut image's, with zeros around it."""
        backbone, images = nn.Sequential(Cut(ALL, ALL, slice(1, 7), slice(6)), nn.Conv2d(3, 4, 3)), rand(2, 3, 8, 10)
        latent, tape = taped(backbone, images)
        pixels = tape.backward(latent.abs())[0]
        close(pixels[:, 1:7, :6].sum((1, 2)), latent.abs().sum((1, 2, 3)), rtol=1e-4, atol=0)
        assert pixels.count_nonzero() == pixels[:, 1:7, :6].count_nonzero()

    def test_an_index_that_is_no_crop_is_an_obstacle(self):
        model = UnitReader(nn.Sequential(nn.Conv2d(3, 4, 1), Cut(ALL, [1, 0, 2, 3])), 4)
        assert "cannot pass 'backbone.1' (Cut, operation '__getitem__')" in str(PRP().supports(model))
