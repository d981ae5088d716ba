"""Relevance within windows is the relevance of whole tensors."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from protometry.explanations.relevance.convolution_rules import ConvolutionMap, Filters, Weighted
from protometry.explanations.relevance.prp_and_lrp_rules import Residual, passed
from protometry.explanations.relevance.recorder import record
from protometry.explanations.relevance.window import Window, narrowed
from tests.explanations.backbones import UnitReader, moved_statistics, protopnet

GENERATOR = torch.Generator().manual_seed(0)


def rand(*shape):
    return torch.rand(*shape, generator=GENERATOR)


class TestWindow:
    cells = Window(torch.tensor([[-1, 0, 1], [3, 4, 5]]), torch.tensor([[1, 2], [-2, -1]]), (5, 4))

    def test_take_pads_with_zeros(self):
        tensor = rand(2, 3, 5, 4) + 1
        padded = F.pad(tensor, (2, 2, 2, 2))
        expected = torch.stack([padded[0, :, 1:4, 3:5], padded[1, :, 5:8, 0:2]])
        assert torch.equal(self.cells.take(tensor), expected)

    def test_put_is_the_transpose_of_take(self):
        values, tensor = rand(2, 3, 3, 2), rand(2, 3, 5, 4)
        assert (self.cells.put(values) * tensor).sum() == pytest.approx(float((values * self.cells.take(tensor)).sum()))

    def test_a_cell(self):
        window = Window.of_cells(torch.tensor([7, 0]), (2, 5))
        assert (window.rows.tolist(), window.columns.tolist()) == ([[1], [0]], [[2], [0]])

    def test_before_a_convolution(self):
        operator = ConvolutionMap((1, 1), (1, 0), (1, 1), 1)
        inner = Window.of_cells(torch.tensor([0]), (9, 9)).before(operator, (9, 11), (3, 2))
        assert (inner.rows.tolist(), inner.columns.tolist(), inner.frame) == ([[-1, 0, 1]], [[0, 1]], (9, 11))


class TestNarrowed:
    window = Window.of_cells(torch.tensor([0, 44]), (9, 9))

    @pytest.mark.parametrize("non_negative", [True, False])
    @pytest.mark.parametrize("groups", [1, 4])
    @pytest.mark.parametrize(("kernel", "padding"), [(3, 1), (1, 0), (3, 2)])
    def test_a_convolution(self, kernel, padding, groups, non_negative):
        x = rand(2, 4, 9 - 2 * padding + kernel - 1, 9 - 2 * padding + kernel - 1) - (0 if non_negative else 0.5)
        weight = rand(8, 4 // groups, kernel, kernel) - 0.8  # many outputs are carried by their bias
        rule = Weighted(x, ConvolutionMap((1, 1), (padding, padding), (1, 1), groups), Filters(weight), non_negative)
        relevance = self.window.put(rand(2, 8, 1, 1))
        cut, (inner,) = narrowed(rule, self.window)
        (got,), (expected,) = cut(self.window.take(relevance)), rule(relevance.clone())
        torch.testing.assert_close(inner.put(got), expected, rtol=1e-5, atol=1e-7)
        carried = [each.bypass(r) for each, r in ((cut, self.window.take(relevance)), (rule, relevance))]
        assert float(carried[0] or 0) == pytest.approx(float(carried[1] or 0), rel=1e-5)

    def test_what_nothing_reaches_is_shared_evenly_within_the_frame(self):
        x, weight = torch.zeros(2, 1, 9, 9), torch.ones(1, 1, 3, 3)
        rule = Weighted(x, ConvolutionMap((1, 1), (1, 1), (1, 1), 1), Filters(weight), True)
        cut, (inner,) = narrowed(rule, self.window)
        (got,) = cut(torch.ones(2, 1, 1, 1))
        shares = inner.put(got)[:, 0]
        assert torch.equal(shares[0, :2, :2], torch.full((2, 2), 0.25))  # the corner has four neighbours
        torch.testing.assert_close(shares.sum((1, 2)), torch.ones(2))

    def test_a_sum(self):
        a, b = rand(2, 3, 9, 9) - 0.5, rand(2, 3, 9, 9) - 0.5
        cut, windows = narrowed(Residual(a, b), self.window)
        relevance = self.window.put(rand(2, 3, 1, 1))
        for got, expected in zip(cut(self.window.take(relevance)), Residual(a, b)(relevance.clone()), strict=True):
            torch.testing.assert_close(self.window.put(got), expected)
        assert windows == [self.window, self.window]

    def test_where_whole_tensors_are_needed(self):
        assert narrowed(passed, self.window) == (passed, [self.window])
        assert narrowed(lambda relevance: (relevance,), self.window) is None
        filters = Filters(rand(8, 4, 3, 3))
        for stride, dilation in (((2, 2), (1, 1)), ((1, 1), (2, 2))):
            operator = ConvolutionMap(stride, (1, 1), dilation, 1)
            assert narrowed(Weighted(rand(2, 4, 9, 9), operator, filters), self.window) is None
        large = Window(torch.arange(7).expand(2, -1), torch.arange(6).expand(2, -1), (9, 9))  # 42 of 81 cells
        operator = ConvolutionMap((1, 1), (1, 1), (1, 1), 1)
        assert narrowed(Weighted(rand(2, 4, 9, 9), operator, filters), large) is None


def deep():
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU()]
    return UnitReader(moved_statistics(nn.Sequential(*layers)), 4, rand(2, 4), size=(12, 12))


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "mobilenet_v2", "sketch", "deep"])
@torch.no_grad()
def test_maps_do_not_depend_on_where_they_are_computed(name):
    torch.manual_seed(1)
    model = deep() if name == "deep" else protopnet(name, 224 if name == "mobilenet_v2" else 96)
    side = model.geometry.image[0]
    images = rand(2, 3, side, side)
    output, tape = record(model, images)
    height, width = output.latent.shape[2:]
    for cell in (0, height * width - 1, width * (height // 2) + width // 2):
        start = torch.zeros_like(output.latent)
        start.flatten(2)[:, :, cell] = rand(2, start.shape[1])
        whole, carried = tape.backward(start.clone())
        cut, also_carried = tape.backward(start.clone(), torch.full((2,), cell))
        torch.testing.assert_close(cut, whole, rtol=1e-3, atol=1e-5 * float(whole.abs().max()))
        amounts, others = ({id(weight): float(amount) for weight, amount in each} for each in (carried, also_carried))
        for weight in amounts | others:
            assert amounts.get(weight, 0) == pytest.approx(others.get(weight, 0), rel=1e-3, abs=1e-5)
