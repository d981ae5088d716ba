import math

import pytest
import torch

from metrics.functional import (
    features_per_class,
    global_size,
    local_size,
    negative_positive_ratio,
    number_of_features,
    sparsity,
)

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
WEIGHT = torch.tensor([[1.0, 0.0, -0.5, 0.0005], [0.0, 2.0, 0.0, 0.0]])
ALL = torch.ones(4, dtype=torch.bool)


def random_weight(seed, dtype, classes=4, units=6):
    generator = torch.Generator().manual_seed(seed)
    choices = torch.tensor([-1.0, -0.0005, 0.0, 0.0, 0.0005, 2.0])
    weight = choices[torch.randint(6, (classes, units), generator=generator)].to(dtype)
    return weight, torch.rand(units, generator=generator) < 0.7


def same(value, expected):
    return float(value) == pytest.approx(expected, abs=1e-12, nan_ok=True)


class TestWeights:
    def test_hand_case(self):
        assert global_size(WEIGHT, ALL) == 3  # columns 0, 1, 2; 0.0005 is below the threshold
        assert global_size(WEIGHT, ALL, variant="quanproto") == 2  # column 2 is only negative
        assert sparsity(WEIGHT) == 0.625  # 3 of 8 are not negligible
        assert negative_positive_ratio(WEIGHT) == 0.5  # -0.5 against 1 and 2
        assert number_of_features(WEIGHT) == 4
        assert features_per_class(WEIGHT) == 2  # 4 non-zeros, 2 classes
        assert global_size(WEIGHT, ALL).dtype == number_of_features(WEIGHT).dtype == torch.int64

    def test_pruned_columns_are_left_out(self):
        active = torch.tensor([False, True, True, True])
        # left: columns (0, 2), (-.5, 0), (.0005, 0)
        assert global_size(WEIGHT, active) == 2
        assert sparsity(WEIGHT, active) == pytest.approx(1 - 2 / 6)
        assert negative_positive_ratio(WEIGHT, active) == 1
        assert number_of_features(WEIGHT, active) == 3
        assert features_per_class(WEIGHT, active) == 1.5

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_slow_oracle(self, dtype):
        for seed in range(5):
            weight, active = random_weight(seed, dtype)
            columns = [[row[u] for row in weight.tolist()] for u in range(6) if active[u]]
            entries = [entry for column in columns for entry in column]
            positive = sum(entry > 1e-3 for entry in entries)
            assert global_size(weight, active) == sum(max(map(abs, column)) > 1e-3 for column in columns)
            assert global_size(weight, active, variant="quanproto") == sum(max(column) > 1e-3 for column in columns)
            assert same(sparsity(weight, active), 1 - sum(abs(entry) > 1e-3 for entry in entries) / len(entries))
            expected = sum(entry < -1e-3 for entry in entries) / positive if positive else math.nan
            assert same(negative_positive_ratio(weight, active), expected)
            assert number_of_features(weight, active) == sum(any(column) for column in columns)
            assert same(features_per_class(weight, active), sum(entry != 0 for entry in entries) / 4)

    def test_relabelling_units_and_classes_changes_nothing(self):
        for seed in range(3):
            weight, active = random_weight(seed, torch.float32)
            units, classes = (
                torch.randperm(6, generator=torch.Generator().manual_seed(seed)),
                torch.tensor([2, 0, 3, 1]),
            )
            for kernel in (global_size, sparsity, negative_positive_ratio, number_of_features, features_per_class):
                assert same(kernel(weight[classes][:, units], active[units]), float(kernel(weight, active)))
                assert same(kernel(weight.T.contiguous().T, active), float(kernel(weight, active)))

    def test_the_threshold_is_strict(self):
        weight = torch.tensor([[0.5, -0.5]])
        active = torch.ones(2, dtype=torch.bool)
        assert global_size(weight, active, threshold=0.5) == 0
        assert sparsity(weight, threshold=0.5) == 1
        assert negative_positive_ratio(weight, threshold=0.5).isnan()
        assert negative_positive_ratio(weight, threshold=0.25) == 1

    def test_ends(self):
        full = torch.ones(2, 3)
        assert sparsity(full) == 0
        assert sparsity(torch.zeros(2, 3)) == 1
        assert negative_positive_ratio(full) == 0
        assert negative_positive_ratio(-full).isnan()
        assert global_size(torch.zeros(2, 3), torch.ones(3, dtype=torch.bool)) == 0

    def test_no_active_unit(self):
        none = torch.zeros(4, dtype=torch.bool)
        assert global_size(WEIGHT, none) == number_of_features(WEIGHT, none) == 0
        assert features_per_class(WEIGHT, none) == 0
        assert sparsity(WEIGHT, none).isnan()
        assert negative_positive_ratio(WEIGHT, none).isnan()

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_not_finite(self, bad):
        weight = WEIGHT.clone()
        weight[0, 0] = bad
        for kernel in (sparsity, negative_positive_ratio, features_per_class):
            assert kernel(weight).isnan()
            assert not kernel(weight, torch.tensor([False, True, True, True])).isnan()
        for kernel in (lambda: global_size(weight, ALL), lambda: number_of_features(weight)):
            with pytest.raises(ValueError, match="`weight` to be finite in active columns"):
                kernel()

    def test_errors(self):
        for kernel in (global_size, sparsity, negative_positive_ratio, number_of_features, features_per_class):
            with pytest.raises(ValueError, match="`weight` to be of shape"):
                kernel(WEIGHT[0], ALL)
            with pytest.raises(ValueError, match="`active` to be of shape"):
                kernel(WEIGHT, ALL[:2])
            with pytest.raises(ValueError, match=r"`active` to be of shape .* dtype bool"):
                kernel(WEIGHT, ALL.float())
        with pytest.raises(ValueError, match="`variant` to be one of"):
            global_size(WEIGHT, ALL, variant="published")


class TestGlobalSize:
    def test_without_weights_every_active_unit_counts(self):
        assert global_size(None, torch.tensor([True, False, True])) == 2
        with pytest.raises(ValueError, match="`active` to be of shape"):
            global_size(None, torch.ones(3))

    @pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
    def test_assigned_slots(self, dtype):
        # 50 prototypes in the pool, 10 classes with 2 slots that share prototypes 0..4
        presence = torch.zeros(10, 50, dtype=dtype)
        for index in range(10):
            presence[index, index % 5] = presence[index, (index + 1) % 5] = 1
        active = torch.ones(50, dtype=torch.bool)
        assert global_size(torch.randn(10, 50), active, presence) == 5
        assert global_size(None, active, presence) == 5
        assert global_size(None, active, presence, variant="quanproto") == 5
        active[0] = False
        assert global_size(None, active, presence) == 4

    def test_raw_assignment_logits(self):
        logits = torch.randn(10, 50, generator=torch.Generator().manual_seed(0))
        active = torch.ones(50, dtype=torch.bool)
        assert global_size(None, active, logits, threshold=1e-6, variant="quanproto") == 50
        with pytest.raises(
            ValueError, match="`presence` to be a 0/1 assignment, but got other values; take the argmax"
        ):
            global_size(None, active, logits)
        with pytest.raises(ValueError, match="`presence` to be finite"):
            global_size(None, active, logits * math.nan)


def slow_local_size(row, active, threshold):
    chosen = [score for score, is_active in zip(row, active, strict=True) if is_active]
    if not chosen or not all(map(math.isfinite, chosen)) or max(chosen) <= 0:
        return math.nan
    return sum(score / max(chosen) > threshold for score in chosen)


class TestLocalSize:
    def test_hand_case(self):
        # shares 1, .5, .15, .095
        assert local_size(torch.tensor([[2.0, 1.0, 0.3, 0.19]])).tolist() == [3]

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_slow_oracle(self, dtype):
        for seed in range(4):
            generator = torch.Generator().manual_seed(seed)
            scores = torch.randn(8, 6, generator=generator).to(dtype)
            active = torch.rand(6, generator=generator) < 0.6
            for threshold in (0.1, 0.5):
                expected = [slow_local_size(row, active.tolist(), threshold) for row in scores.double().tolist()]
                values = local_size(scores, active, threshold)
                assert values.dtype == torch.float64
                assert values.tolist() == pytest.approx(expected, nan_ok=True)

    def test_inactive_units_neither_count_nor_set_the_maximum(self):
        scores = torch.tensor([[100.0, 1.0, 0.5, math.nan]])
        assert local_size(scores, torch.tensor([False, True, True, False])).tolist() == [2]
        assert local_size(scores, torch.zeros(4, dtype=torch.bool)).isnan().all()

    def test_a_maximum_that_is_not_positive_is_undefined(self):
        scores = torch.tensor([[-1.0, -2.0], [0.0, 0.0], [0.0, -1.0], [1e-30, 0.0]])
        assert local_size(scores).tolist() == pytest.approx([math.nan, math.nan, math.nan, 1], nan_ok=True)

    def test_strict_in_float64(self):
        # float32 0.1 is 0.100000001490116 in float64 and passes; float64 0.1 does not
        assert local_size(torch.tensor([[1.0, 0.1]])).tolist() == [2]
        assert local_size(torch.tensor([[1.0, 0.1]], dtype=torch.float64)).tolist() == [1]

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_not_finite_is_undefined(self, bad):
        assert local_size(torch.tensor([[1.0, bad], [1.0, 1.0]])).tolist() == pytest.approx([math.nan, 2], nan_ok=True)

    def test_scale_and_permutation_change_nothing(self):
        scores = torch.randn(5, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        for same_units in (scores * 8, scores.flip(1), scores.T.contiguous().T):
            torch.testing.assert_close(local_size(same_units), local_size(scores), rtol=0, atol=0, equal_nan=True)
        assert local_size(torch.zeros(0, 6)).shape == (0,)
        assert local_size(torch.tensor([[3.0]])).tolist() == [1]

    def test_errors(self):
        with pytest.raises(ValueError, match="`scores` to be of shape"):
            local_size(torch.zeros(3))
        with pytest.raises(ValueError, match="`active` to be of shape"):
            local_size(torch.zeros(1, 3), torch.ones(2, dtype=torch.bool))
