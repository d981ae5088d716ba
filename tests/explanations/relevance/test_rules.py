from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from protometry.explanations.relevance.convolution_rules import ConvolutionMap, Filters, LinearMap, Weighted
from protometry.explanations.relevance.prp_and_lrp_rules import AveragePool, MaxPool, Residual, split
from tests.explanations.small_models import rand, randn

close = torch.testing.assert_close
POINTWISE = ConvolutionMap((1, 1), (0, 0), (1, 1), 1)


def values(*numbers):
    """Channels of one cell."""
    return torch.tensor(numbers, dtype=torch.float32).view(1, -1, 1, 1)


class TestWeightedByHand:
    """One cell, two input channels, mixed signs."""

    def test_alpha_one_beta_zero(self):
        # products 2*1 = 2 and -3*-1 = 3 are positive, 4*-2 is not: R = 10 is shared 4 : 6 : 0
        rule = Weighted(values(2, -3, 4), POINTWISE, Filters(values(1, -1, -2)))
        close(rule(values(10.0))[0], values(4, 6, 0))

    def test_outputs_carried_by_their_bias_take_the_ladder(self):
        # products -2 and -6 only: by size, 8 is shared 2 : 6
        rule = Weighted(values(2, -3), POINTWISE, Filters(values(-1, 2)))
        close(rule.bypass(values(-8.0)), torch.tensor(8.0))
        close(rule(values(8.0))[0], values(2, 6))

    def test_without_the_ladder_their_relevance_is_lost(self):
        rule = Weighted(values(2, -3), POINTWISE, Filters(values(-1, 2)), ladder=False)
        assert rule.bypass(values(8.0)) is None
        close(rule(values(8.0))[0], values(0, 0))

    def test_empty_windows_share_evenly_and_padding_gets_nothing(self):
        operator = ConvolutionMap((1, 1), (1, 1), (1, 1), 1)
        rule = Weighted(torch.zeros(1, 1, 3, 3), operator, Filters(torch.ones(1, 1, 3, 3)), non_negative=True)
        relevance = torch.zeros(1, 1, 3, 3)
        relevance[0, 0, 0, 0], relevance[0, 0, 1, 1] = 4, 9  # the corner's window has 4 pixels, the centre's 9
        close(rule.bypass(relevance), torch.tensor(13.0))
        expected = torch.ones(3, 3)
        expected[:2, :2] += 1
        close(rule(relevance)[0][0, 0], expected)

    def test_ladder_and_rule_beside_each_other(self):
        rule = Weighted(values(2, -3), POINTWISE, Filters(torch.cat([values(-1, 2), values(1, -1), values(0, 0)])))
        close(rule.bypass(values(8.0, 5.0, 4.0)), torch.tensor(12.0))
        close(rule(values(8.0, 5.0, 4.0))[0], values(2 + 2 + 2, 6 + 3 + 2))

    def test_a_negative_factor_of_the_normalization_turns_the_weights(self):
        scale = (torch.tensor([3.0]), torch.tensor([-4.0]), 1.0)  # -4 / sqrt(3 + 1)
        filters = Filters(values(1, -1, -2), scale)
        close(filters.folded, values(-2, 2, 4))
        close(Weighted(values(2, -3, 4), POINTWISE, filters)(values(10.0))[0], values(0, 0, 10))
        close(Filters(values(1.0), (torch.tensor([3.0]), None, 1.0)).folded, values(0.5))

    def test_linear(self):
        x, weight = torch.tensor([[2.0, -3.0]]), torch.tensor([[1.0, -1.0], [2.0, 4.0]])
        close(Weighted(x, LinearMap(), Filters(weight))(torch.tensor([[5.0, -8.0]]))[0], torch.tensor([[-6.0, 3.0]]))


class TestPixels:
    BOUNDS = torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]).view(2, 3, 1, 1)

    def test_two_pixels_by_hand(self):
        # pixel 0: (x - l) w+ + (x - h) w- = 0.5*2 + 0.75*1 + 0.5*1 = 2.25; pixel 1: 1*1 + 1*1 + 0 = 2
        x = torch.tensor([[0.5, 1.0], [0.25, 0.0], [0.5, 0.0]]).view(1, 3, 1, 2)
        weight = torch.tensor([[2.0, 1.0], [-1.0, -1.0], [1.0, 0.0]]).view(1, 3, 1, 2)
        rule = Weighted(x, POINTWISE, Filters(weight), bounds=self.BOUNDS)
        close(rule(torch.full((1, 1, 1, 1), 8.5))[0].flatten(), torch.tensor([4.5, 4.0]))

    def test_saturated_pixels_take_the_ladder(self):
        # white under a negative filter: nothing above the lowest possible sum; by |x| |w| = 1, 2, 3 instead
        x = torch.ones(1, 3, 1, 2)
        weight = -torch.tensor([[0.25, 0.5], [0.5, 0.5], [0.25, 2.0]]).view(1, 3, 1, 2)
        rule = Weighted(x, POINTWISE, Filters(weight), bounds=self.BOUNDS)
        relevance = torch.full((1, 1, 1, 1), 8.0)
        close(rule.bypass(relevance), torch.tensor(8.0))
        close(rule(relevance)[0].flatten(), torch.tensor([2.0, 6.0]))

    @pytest.mark.parametrize(("stride", "padding"), [((1, 1), (1, 1)), ((2, 2), (3, 3)), ((2, 1), (0, 2))])
    def test_bounds_by_definition_and_zero_padding(self, stride, padding):
        low, high = torch.tensor([-2.0, -1.0, 0.0]), torch.tensor([1.0, 3.0, 0.5])
        x = low[:, None, None] + rand(2, 3, 8, 7) * (high - low)[:, None, None]
        weight, operator = randn(5, 3, 5, 3), ConvolutionMap(stride, padding, (1, 1), 1)
        bounds = torch.stack([high, low]).view(2, 3, 1, 1)  # in any order
        relevance = randn(*operator(x, weight).shape, seed=1)
        plus, minus = weight.clamp(min=0), weight.clamp(max=0)
        lows, highs = (bound[:, None, None].expand_as(x) for bound in (low, high))
        z = operator(x, weight) - operator(lows, plus) - operator(highs, minus)
        s = relevance / z
        terms = ((x, weight), (-lows, plus), (-highs, minus))
        expected = sum(factor * nn.grad.conv2d_input(x.shape, w, s, stride, padding) for factor, w in terms)
        rule = Weighted(x, operator, Filters(weight), bounds=bounds)
        close(rule(relevance.clone())[0], expected.sum(1, keepdim=True), rtol=1e-4, atol=1e-5)


def slow_alpha_beta(x, weight, relevance, stride, padding, dilation, groups):
    """Every pair of an output and an input by itself: shares by the positive parts of products, sizes, or evenly."""
    result = torch.zeros_like(x)
    outputs, inputs, *kernel = weight.shape
    for b, o, i, j in itertools.product(*map(range, relevance.shape)):
        window = {}
        for c, k, m in itertools.product(range(inputs), range(kernel[0]), range(kernel[1])):
            row, column = i * stride - padding + k * dilation, j * stride - padding + m * dilation
            if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
                channel = o // (outputs // groups) * inputs + c
                product = (x[b, channel, row, column] * weight[o, c, k, m]).item()
                window[channel, row, column] = product
        rungs = (lambda p: max(p, 0.0)), abs, (lambda p: 1.0)
        rung = next(rung for rung in rungs if sum(map(rung, window.values())) > 0)
        total = sum(map(rung, window.values()))
        for place, product in window.items():
            result[(b, *place)] += rung(product) / total * relevance[b, o, i, j].item()
    return result


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups", "non_negative"),
    [(1, 1, 1, 1, False), (2, 1, 1, 1, True), (1, 0, 2, 2, False), (2, 2, 1, 4, True), (1, 1, 1, 4, False)],
)
def test_convolution_by_definition(stride, padding, dilation, groups, non_negative):
    x = rand(2, 4, 6, 5) if non_negative else randn(2, 4, 6, 5)
    x[0, 1, 2:] = 0  # empty windows for depthwise filters
    weight = randn(4, 4 // groups, 3, 3, seed=1)
    operator = ConvolutionMap((stride, stride), (padding, padding), (dilation, dilation), groups)
    relevance = randn(*operator(x, weight).shape, seed=2)
    expected = slow_alpha_beta(x, weight, relevance, stride, padding, dilation, groups)
    got = Weighted(x, operator, Filters(weight), non_negative)(relevance.clone())[0]
    close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "size"),
    [
        ((7, 7), (2, 2), (3, 3), (20, 23)),
        ((3, 3), (1, 1), (1, 1), (6, 9)),
        ((2, 2), (3, 3), (0, 0), (11, 9)),  # pixels between the windows and behind the last
        ((4, 4), (4, 4), (0, 0), (9, 8)),
        ((3, 5), (2, 1), (1, 0), (8, 8)),
        ((1, 1), (1, 1), (0, 0), (3, 2)),
    ],
)
def test_transpose_for_few_channels_is_that_of_the_gradient(kernel, stride, padding, size, layout):
    weight, x = randn(6, 3, *kernel), randn(2, 3, *size).contiguous(memory_format=layout)
    operator = ConvolutionMap(stride, padding, (1, 1), 1)
    s = randn(*operator(x, weight).shape, seed=1).contiguous(memory_format=layout)
    expected = nn.grad.conv2d_input(x.shape, weight, s, stride, padding)
    close(operator.transposed(s, weight, x), expected, rtol=1e-5, atol=1e-5)


class TestResidual:
    def test_by_hand(self):
        to_a, to_b = Residual(torch.tensor([-1.0]), torch.tensor([2.0]))(torch.tensor([3.0]))
        close(to_a, torch.tensor([-3.0]))
        close(to_b, torch.tensor([6.0]))

    def test_negative_sums_are_stabilised_away_from_zero(self):
        a, b = torch.tensor([-3e-6, 3e-6]), torch.tensor([2e-6, -2e-6])
        to_a, to_b = Residual(a, b)(torch.ones(2))
        close(to_a, torch.full((2,), 1.5))  # -3 / (-1 - 1)
        close(to_b, torch.full((2,), -1.0))

    def test_half_each_where_the_sum_is_zero(self):
        a, b = torch.tensor([1.0, 0.0, 1.0]), torch.tensor([-1.0, 0.0, 3.0])
        to_a, to_b = Residual(a, b)(torch.tensor([4.0, 2.0, 4.0]))
        close(to_a, torch.tensor([2.0, 1.0, 1.0]))
        close(to_b, torch.tensor([2.0, 1.0, 3.0]))


class TestPools:
    @pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
    def test_first_of_equal_maxima_takes_all(self, layout):
        x = torch.tensor([[1.0, 2.0, 2.0], [2.0, 2.0, 0.0], [0.0, 0.0, 0.0]]).expand(2, 20, 3, 3)
        x = x.contiguous(memory_format=layout)
        _, winners = F.max_pool2d(x, 3, 2, 1, return_indices=True)
        relevance = torch.tensor([[1.0, 10.0], [100.0, 1000.0]]).expand(2, 20, 2, 2).contiguous(memory_format=layout)
        got = MaxPool(winners, x.shape, ([3, 3], [2, 2], [1, 1], [1, 1], False))(relevance)[0]
        # the windows above see rows 0-1, those below rows 1-2; left columns 0-1, right columns 1-2
        expected = torch.tensor([[0.0, 11.0, 0.0], [100.0, 1000.0, 0.0], [0.0, 0.0, 0.0]])
        close(got, expected.expand(2, 20, 3, 3))

    def test_average_shares_by_size(self):
        x = torch.tensor([[1.0, 3.0, 5.0, -1.0]]).view(1, 1, 1, 4)
        rule = AveragePool.of(x, F.avg_pool2d(x, (1, 2)), ([1, 2], [1, 2], [0, 0], False, True, None))
        close(rule(torch.tensor([8.0, 4.0]).view(1, 1, 1, 2))[0].flatten(), torch.tensor([2.0, 6.0, 5.0, -1.0]))

    @pytest.mark.parametrize("size", [(1, 1), (2, 3)])
    def test_adaptive_average_conserves(self, size):
        x = rand(2, 3, 5, 7)
        relevance = rand(2, 3, *size, seed=1)
        got = AveragePool.of(x, F.adaptive_avg_pool2d(x, size), None)(relevance.clone())[0]
        close(got.sum((2, 3)), relevance.sum((2, 3)), rtol=1e-5, atol=1e-5)
        if size == (1, 1):
            close(got, x / x.sum((2, 3), keepdim=True) * relevance, rtol=1e-5, atol=1e-5)

    def test_an_empty_average_stays_finite(self):
        x = torch.zeros(1, 1, 2, 2)
        rule = AveragePool.of(x, F.avg_pool2d(x, 2), ([2, 2], [2, 2], [0, 0], False, True, None))
        assert torch.equal(rule(torch.ones(1, 1, 1, 1))[0], x)


def test_concatenated_tensors_get_what_arrived_at_their_place():
    first, second = split(torch.arange(10.0).view(1, 5, 1, 2), [2, 3], 1)
    assert first.flatten().tolist() == [0, 1, 2, 3]
    assert second.flatten().tolist() == [4, 5, 6, 7, 8, 9]
