import math

import pytest
import torch

from metrics.functional import (
    accuracy_change,
    keyed_uniform,
    masked_projected_gradient,
    misalignment_activation_change,
    misalignment_location_change,
    misalignment_rank_change,
)

NAN = math.nan
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SCORES, PERTURBED = torch.tensor([[2.0, 1.0, 0.5]]), torch.tensor([[0.8, 1.0, 0.9]])
OWNER = torch.tensor([[True, False], [False, True], [False, True]])
TARGET, LABEL = torch.tensor([0]), torch.tensor([0])


def approx(values):
    return pytest.approx(values, abs=1e-12, nan_ok=True)


def random_scores(seed, dtype, count=12, units=6, classes=3):
    generator = torch.Generator().manual_seed(seed)
    scores, perturbed = (torch.randn(count, units, generator=generator).to(dtype) for _ in range(2))
    target = torch.randint(-1, units, (count,), generator=generator)
    labels = torch.randint(classes, (count,), generator=generator)
    owner = torch.rand(units, classes, generator=generator) < 0.4
    active = torch.rand(units, generator=generator) < 0.8
    scores[1, 2], perturbed[2, 3] = NAN, math.inf
    return scores, perturbed, target, labels, owner, active


class TestActivationChange:
    def test_hand_case(self):
        assert misalignment_activation_change(SCORES, PERTURBED, TARGET).item() == pytest.approx(0.6)
        # signed: the score of unit 2 rises from 0.5 to 0.9
        assert misalignment_activation_change(SCORES, PERTURBED, TARGET + 2).item() == pytest.approx(-0.8)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_slow_oracle(self, dtype):
        for seed in range(3):
            scores, perturbed, target, *_ = random_scores(seed, dtype)
            expected = []
            for row, other, unit in zip(scores.tolist(), perturbed.tolist(), target.tolist(), strict=True):
                s, t = row[unit], other[unit]
                defined = unit >= 0 and math.isfinite(s) and math.isfinite(t) and s > 0
                expected.append(1 - max(t, 0) / s if defined else NAN)
            values = misalignment_activation_change(scores, perturbed, target)
            assert values.dtype == torch.float64
            assert values.tolist() == approx(expected)

    def test_ends(self):
        assert misalignment_activation_change(SCORES, SCORES, TARGET).tolist() == [0]
        assert misalignment_activation_change(SCORES, -SCORES, TARGET).tolist() == [1]
        for clean in (0.0, -1.0, NAN, math.inf):
            scores = torch.tensor([[clean, 1.0, 1.0]])
            assert misalignment_activation_change(scores, PERTURBED, TARGET).isnan().all()


class TestLocationChange:
    MAPS = torch.arange(20.0).view(1, 4, 5)

    def test_hand_case(self):
        # the 0.9 quantile is 17.1: cells 18 and 19; then cells 0 and 19: 1 of 3 shared
        moved = self.MAPS.clone()
        moved[0, 0, 0], moved[0, 3, 3] = 18, 0
        assert misalignment_location_change(self.MAPS, moved).item() == pytest.approx(2 / 3)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_slow_oracle(self, dtype):
        generator = torch.Generator().manual_seed(0)
        maps, moved = (torch.randn(6, 5, 7, generator=generator).to(dtype) for _ in range(2))
        maps[1], moved[2], maps[3, 0, 0] = 4, 0, NAN
        expected = []
        for one, two in zip(maps.double().flatten(1).tolist(), moved.double().flatten(1).tolist(), strict=True):
            # place 30.6 of 35 sorted values: what lies above the 31st
            regions = [{i for i, v in enumerate(values) if v > sorted(values)[30]} for values in (one, two)]
            flat = any(max(values) == min(values) or any(map(math.isnan, values)) for values in (one, two))
            expected.append(NAN if flat else 1 - len(regions[0] & regions[1]) / len(regions[0] | regions[1]))
        assert misalignment_location_change(maps, moved).tolist() == approx(expected)

    def test_ends(self):
        assert misalignment_location_change(self.MAPS, self.MAPS).tolist() == [0]
        assert misalignment_location_change(self.MAPS, self.MAPS * 8 + 3).tolist() == [0]
        assert misalignment_location_change(self.MAPS, -self.MAPS).tolist() == [1]
        assert misalignment_location_change(self.MAPS, self.MAPS, quantile=0.5).tolist() == [0]
        flat = torch.ones_like(self.MAPS)
        assert misalignment_location_change(flat, self.MAPS).isnan().all()
        assert misalignment_location_change(self.MAPS, flat).isnan().all()


def better_strangers(row, unit, strangers, active):
    """How many of the strangers score above the unit, NaN where a score that takes part is not finite."""
    taking_part = [value for value, used in zip(row, active, strict=True) if used]
    if unit < 0 or not all(map(math.isfinite, [row[unit], *taking_part])):
        return NAN
    return sum(max(row[u], 0) > max(row[unit], 0) for u in strangers)


class TestRankChange:
    def test_hand_case(self):
        assert misalignment_rank_change(SCORES, PERTURBED, TARGET, LABEL, OWNER).tolist() == [2]
        active = torch.tensor([True, False, True])
        assert misalignment_rank_change(SCORES, PERTURBED, TARGET, LABEL, OWNER, active).tolist() == [1]
        # units of the image's own class do not overtake
        owner = torch.tensor([[True, False], [True, False], [False, True]])
        assert misalignment_rank_change(SCORES, PERTURBED, TARGET, LABEL, owner).tolist() == [1]
        several = torch.tensor([[True, True]])
        assert misalignment_rank_change(SCORES, PERTURBED, TARGET, several, OWNER).tolist() == [0]

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_slow_oracle(self, dtype):
        for seed in range(3):
            scores, perturbed, target, labels, owner, active = random_scores(seed, dtype)
            expected = []
            for i, unit in enumerate(target.tolist()):
                strangers = [u for u in range(6) if active[u] and not owner[u, labels[i]]]
                before, after = (
                    better_strangers(row[i].tolist(), unit, strangers, active.tolist()) for row in (scores, perturbed)
                )
                expected.append(after - before)
            values = misalignment_rank_change(scores, perturbed, target, labels, owner, active)
            assert values.tolist() == approx(expected)
            one_hot = torch.nn.functional.one_hot(labels, 3).bool()
            values = misalignment_rank_change(scores, perturbed, target, one_hot, owner, active)
            assert values.tolist() == approx(expected)

    def test_equal_scores_do_not_overtake(self):
        tie = torch.tensor([[1.0, 1.0, 1.0]])
        assert misalignment_rank_change(SCORES, tie, TARGET, LABEL, OWNER).tolist() == [0]
        assert misalignment_rank_change(SCORES, SCORES, TARGET, LABEL, OWNER).tolist() == [0]
        # both below 0: clipped, equal
        assert misalignment_rank_change(SCORES, torch.tensor([[-2.0, -1, -1]]), TARGET, LABEL, OWNER).tolist() == [0]


class TestAccuracyChange:
    def test_hand_cases(self):
        logits = torch.tensor([[2.0, 1.0], [1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [NAN, 1.0]])
        after = torch.tensor([[1.0, 2.0], [2.0, 1.0], [3.0, 1.0], [1.0, 3.0], [1.0, 2.0]])
        labels = torch.zeros(5, dtype=torch.int64)
        assert accuracy_change(logits, after, labels).tolist() == approx([1, -1, 0, 0, NAN])

    def test_multilabel(self):
        logits, labels = torch.tensor([[1.0, -1.0, 2.0]]), torch.tensor([[True, False, True]])
        assert accuracy_change(logits, logits, labels).tolist() == [0]
        assert accuracy_change(logits, -logits, labels).tolist() == [1]
        assert accuracy_change(-logits, logits, labels).tolist() == [-1]


class TestAttack:
    """A unit whose score is the mean of the left half and 0.5 that of the right; the left half is protected."""

    IMAGES = torch.full((4, 3, 8, 8), 0.5)
    MASK = torch.zeros(4, 1, 8, 8, dtype=torch.bool)
    MASK[..., 4:] = True
    EPSILON = 0.4 * torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)

    def unit(self, images):
        return images[..., :4].mean((1, 2, 3)) + 0.5 * images[..., 4:].mean((1, 2, 3))

    def change(self, score, steps):
        ids = torch.arange(4)
        start = self.EPSILON * keyed_uniform(ids, torch.zeros(4, 1, dtype=torch.int64), (3, 8, 8))[:, 0]
        attacked = masked_projected_gradient(
            score, self.IMAGES, self.MASK, self.EPSILON, self.EPSILON / 40, steps, start
        )
        clean, after = score(self.IMAGES)[:, None], score(attacked)[:, None]
        return misalignment_activation_change(clean, after, torch.zeros(4, dtype=torch.int64)), attacked

    def test_the_attack_beats_noise(self):
        images = self.IMAGES.clone().requires_grad_()
        self.unit(images).sum().backward()
        assert images.grad.norm() > 0
        attacked, pixels = self.change(self.unit, 40)
        noise, _ = self.change(self.unit, 0)
        assert (attacked > noise + 0.02).all()
        assert pixels[..., :4].equal(self.IMAGES[..., :4])
        # at least 40 of 40 steps from the centre: half of the mean of ε, over a score of .75
        assert attacked.tolist() == pytest.approx([0.5 * self.EPSILON.mean().item() / 0.75] * 4, abs=0.02)

    def test_a_unit_that_reads_protected_pixels_only(self):
        for steps in (0, 40):
            values, pixels = self.change(lambda images: images[..., :4].mean((1, 2, 3)) + 0 * images.sum(), steps)
            assert values.tolist() == [0] * 4
            maps = self.IMAGES[:, 0] + torch.arange(64.0).view(8, 8), pixels[:, 0] + torch.arange(64.0).view(8, 8)
            assert misalignment_location_change(maps[0][..., :4], maps[1][..., :4]).tolist() == [0] * 4


def test_no_image():
    none, ids = SCORES[:0], TARGET[:0]
    assert misalignment_activation_change(none, none, ids).shape == (0,)
    assert misalignment_rank_change(none, none, ids, ids, OWNER).shape == (0,)
    assert misalignment_location_change(torch.zeros(0, 4, 5), torch.zeros(0, 4, 5)).shape == (0,)
    assert accuracy_change(torch.zeros(0, 2), torch.zeros(0, 2), ids).shape == (0,)


def test_errors():
    for kernel in (misalignment_activation_change, lambda *a: misalignment_rank_change(*a, LABEL, OWNER)):
        with pytest.raises(ValueError, match="`scores` to be of shape"):
            kernel(SCORES[0], PERTURBED, TARGET)
        with pytest.raises(ValueError, match=r"`perturbed_scores` to be of shape \(1, 3\)"):
            kernel(SCORES, PERTURBED[:, :2], TARGET)
        with pytest.raises(ValueError, match=r"`target_ids` to be of shape \(1,\)"):
            kernel(SCORES, PERTURBED, TARGET[None])
    for labels, owner, active, text in (
        (LABEL, OWNER[:2], None, r"`owner` to be of shape \(3, K\)"),
        (LABEL[None], OWNER, None, r"`labels` to be of shape \(1,\) and dtype int64"),
        (torch.ones(1, 3, dtype=torch.bool), OWNER, None, r"`labels` to be of shape \(1, 2\) and dtype bool"),
        (LABEL, OWNER, torch.ones(3), "`active` to be of shape .* dtype bool"),
    ):
        with pytest.raises(ValueError, match=text):
            misalignment_rank_change(SCORES, PERTURBED, TARGET, labels, owner, active)
    maps = torch.zeros(1, 4, 5)
    with pytest.raises(ValueError, match="`target_maps` to be of shape"):
        misalignment_location_change(maps[0], maps)
    with pytest.raises(ValueError, match="`perturbed_target_maps` to be of shape"):
        misalignment_location_change(maps, maps[:, :2])
    with pytest.raises(ValueError, match="`perturbed_logits` to be of shape"):
        accuracy_change(torch.zeros(1, 2), torch.zeros(1, 3), LABEL)
    with pytest.raises(ValueError, match="`labels` to be of shape"):
        accuracy_change(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(2, dtype=torch.int64))
