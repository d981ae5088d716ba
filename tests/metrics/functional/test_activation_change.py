import math

import pytest
import torch

from metrics.change.visualization_activation_change import largest_first
from metrics.functional import (
    classification_activation_change,
    clip_saliency,
    prototype_activation_change,
    visualization_activation_change,
)
from tests.metrics.change.changes import clipped, noisy_maps

NAN = math.nan


def one(rows):
    return torch.tensor(rows)[None, None]


class TestPrototypes:
    def test_by_hand(self):
        maps, perturbed = one([[0.5, 0.5], [0.0, 0.0]]), one([[0.5, 0.0], [0.5, 0.0]])
        assert prototype_activation_change(maps, perturbed).item() == pytest.approx(2 / 3)
        assert prototype_activation_change(maps, perturbed, variant="quanproto").item() == 0

    def test_place_matters(self):
        # nothing is shared: 1; sorted, 2 + 1 of 3 + 2 are: 1 - 3/5
        maps, perturbed = one([[3.0, 1, 0, 0]]), one([[0.0, 0, 2, 2]])
        assert prototype_activation_change(maps, perturbed).item() == 1
        assert prototype_activation_change(maps, perturbed, variant="quanproto").item() == pytest.approx(0.4)

    def test_of_signed_maps_the_positive_part_counts(self):
        # 1 of 2
        assert prototype_activation_change(one([[2.0, -5.0]]), one([[1.0, -1.0]])).item() == 0.5

    @pytest.mark.parametrize("value", [0.0, -1.0])
    def test_nothing_positive_is_undefined(self, value):
        maps = torch.full((1, 1, 2, 2), value)
        assert prototype_activation_change(maps, maps).isnan()
        assert prototype_activation_change(maps, maps + 2).item() == 1

    def test_errors(self):
        maps = torch.zeros(1, 2, 3, 4)
        with pytest.raises(ValueError, match="`variant` to be one of"):
            prototype_activation_change(maps, maps, variant="sorted")
        with pytest.raises(ValueError, match="`maps` to be of shape"):
            prototype_activation_change(maps[0], maps[0])
        with pytest.raises(ValueError, match="`perturbed_maps` to be of shape"):
            prototype_activation_change(maps, maps[:, :1])


class TestVisualizations:
    def test_by_hand(self):
        # sorted (4, 2) against (1, 1): 2 of 6
        value = visualization_activation_change(one([[4.0, 0], [0, 2]]), one([[1.0, 1], [0, 0]]))
        assert value.item() == pytest.approx(2 / 3)

    def test_place_does_not_matter(self):
        maps = clipped(noisy_maps(0))
        for moved in (maps.flip(-1), maps.roll(3, dims=-2)):
            assert visualization_activation_change(maps, moved).nansum() == 0

    def test_more_positive_pixels_than_a_twentieth(self):
        # 28 of 28 pixels; sorted halves: 1 - 1/2
        maps = torch.arange(1.0, 29.0).view(1, 1, 4, 7)
        assert visualization_activation_change(maps, maps.flip(-1) / 2).item() == 0.5

    def test_only_zeros_are_left_unsorted(self):
        sides = clipped(noisy_maps(1)), clipped(noisy_maps(2))
        for side, short in zip(sides, largest_first(*sides), strict=True):
            whole = side.flatten(2).sort(descending=True).values
            assert torch.equal(short, whole[..., : short.shape[-1]])
            assert not whole[..., short.shape[-1] :].any()
        elsewhere = largest_first(*(side.to("meta") for side in sides))
        assert [side.shape for side in elsewhere] == [(13, 3, 28)] * 2

    @pytest.mark.parametrize("empty", [0, 1])
    def test_an_empty_side_is_undefined(self, empty):
        sides = [one([[1.0, 0.0]]), one([[1.0, 0.0]])]
        sides[empty] = one([[0.0, 0.0]])
        assert visualization_activation_change(*sides).isnan()
        assert visualization_activation_change(sides[empty], sides[empty]).isnan()

    def test_errors(self):
        maps = torch.zeros(1, 2, 3, 4)
        with pytest.raises(ValueError, match="`saliency` to be of shape"):
            visualization_activation_change(maps[0], maps[0])
        with pytest.raises(ValueError, match="`perturbed_saliency` to be of shape"):
            visualization_activation_change(maps, maps[:, :1])


class TestClasses:
    def test_by_hand(self):
        # shared .3 + .3 + .2 of .5 + .5 + .2
        logits, perturbed = torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.tensor([[0.3, 0.5, 0.2]]).log()
        assert classification_activation_change(logits, perturbed).item() == pytest.approx(1 - 0.8 / 1.2)
        assert classification_activation_change(logits, perturbed, variant="quanproto").item() == 0
        # shared .2 + .2 + .1 of .7 + .7 + .1
        logits, perturbed = torch.tensor([[0.7, 0.2, 0.1]]).log(), torch.tensor([[0.2, 0.7, 0.1]]).log()
        assert classification_activation_change(logits, perturbed).item() == pytest.approx(2 / 3)

    def test_sigmoid_by_hand(self):
        # (1/2, 1/2) against (3/4, 1/2): shared 1 of 1.25
        logits, perturbed = torch.tensor([[0.0, 0.0]]), torch.tensor([[math.log(3), 0.0]])
        assert classification_activation_change(logits, perturbed, "sigmoid").item() == pytest.approx(0.2)

    def test_raw_logits_whose_maxima_cancel(self):
        logits, perturbed = torch.tensor([[1.0, -1.0]]), torch.tensor([[-1.0, 1.0]])
        assert classification_activation_change(logits, perturbed, variant="quanproto").isnan()
        p = 1 / (1 + math.exp(-2))
        assert classification_activation_change(logits, perturbed).item() == pytest.approx(1 - (1 - p) / p)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    def test_total_variation(self, dtype):
        generator = torch.Generator().manual_seed(0)
        logits, perturbed = (10 * torch.randn(2, 40, 6, generator=generator)).to(dtype)
        value = classification_activation_change(logits, perturbed)
        assert value.dtype == torch.float64
        distance = (logits.double().softmax(1) - perturbed.double().softmax(1)).abs().sum(1) / 2
        assert torch.allclose(value, 2 * distance / (1 + distance), rtol=0, atol=1e-12)
        assert ((value >= 0) & (value <= 1)).all()
        shifted = classification_activation_change(logits.double() + 3, perturbed.double() - 7)
        assert torch.allclose(shifted, value, rtol=0, atol=1e-12)
        for link in ("softmax", "sigmoid"):
            assert (classification_activation_change(logits, logits.clone(), link) == 0).all()

    @pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
    @pytest.mark.parametrize("options", [{}, {"link": "sigmoid"}, {"variant": "quanproto"}])
    def test_not_finite_is_undefined(self, bad, options):
        logits, broken = torch.tensor([[1.0, 2.0], [1.0, 2.0]]), torch.tensor([[1.0, bad], [1.0, 2.0]])
        assert classification_activation_change(logits, broken, **options).isnan().tolist() == [True, False]
        assert classification_activation_change(broken, logits, **options).isnan().tolist() == [True, False]
        assert classification_activation_change(logits[:0], logits[:0], **options).shape == (0,)

    def test_errors(self):
        logits = torch.zeros(2, 3)
        with pytest.raises(ValueError, match=r"`link` to be one of \('softmax', 'sigmoid'\), but got 'tanh'"):
            classification_activation_change(logits, logits, "tanh")
        with pytest.raises(ValueError, match="`variant` to be one of"):
            classification_activation_change(logits, logits, variant="raw")
        with pytest.raises(ValueError, match="`logits` to be of shape"):
            classification_activation_change(logits[0], logits[0])
        with pytest.raises(ValueError, match="`perturbed_logits` to be of shape"):
            classification_activation_change(logits, logits[:, :2])


def test_clipping_then_comparing_needs_no_second_percentile():
    # the 5 % of a map that remain are compared whole: clipping twice would drop most of them
    maps = torch.arange(1.0, 101.0).view(1, 1, 10, 10)
    once = clip_saliency(maps)
    assert (once > 0).sum() == 5
    # halves of 96 .. 100
    assert visualization_activation_change(once, once / 2).item() == 0.5
