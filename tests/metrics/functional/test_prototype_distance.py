import math

import pytest
import torch

from metrics.functional import average_feature_distance, average_prototype_distance, nearest_features
from tests.rounding import tolerance

NAN = math.nan
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
VECTORS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.6, 0.8]])
MEMBERSHIP = torch.tensor([[1, 1, 0, 0], [0, 5, 0, 2], [0, 0, 0, 0]])


def cosine_distance(one, other):
    dot = sum(a * b for a, b in zip(one, other, strict=True))
    return 1 - dot / (math.hypot(*one) * math.hypot(*other))


def mean(values):
    return sum(values) / len(values) if values else NAN


def slow_distance(own, other, mode):
    """Mean over all pairs of vectors, by the definition."""
    if mode == "inter":
        return mean([cosine_distance(one, two) for one in own for two in other])
    return mean([cosine_distance(one, two) for i, one in enumerate(own) for j, two in enumerate(own) if i != j])


def approx(values):
    return pytest.approx(values, abs=1e-12, nan_ok=True)


def close(values):
    return pytest.approx(values, abs=tolerance(1), nan_ok=True)  # 0.6 and 0.8 are float32


class TestAveragePrototypeDistance:
    def test_hand_case(self):
        # class 0: {0, 1} against {2, 3}: (0 + .4 + 1 + .2) / 4; class 1: {1, 3} against {0, 2}: (1 + 1 + .4 + .4) / 4
        assert average_prototype_distance(VECTORS, MEMBERSHIP).tolist() == close([0.4, 0.7, NAN])
        # {(1, 0), (0, 1)} and {(0, 1), (.6, .8)}
        assert average_prototype_distance(VECTORS, MEMBERSHIP, mode="intra").tolist() == close([1, 0.2, NAN])

    def test_counts_are_a_set(self):
        for mode in ("inter", "intra"):
            once = average_prototype_distance(VECTORS, MEMBERSHIP > 0, mode)
            assert once.dtype == torch.float64
            assert average_prototype_distance(VECTORS, MEMBERSHIP * 7, mode).tolist() == approx(once.tolist())

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_slow_oracle(self, dtype):
        for seed in range(3):
            generator = torch.Generator().manual_seed(seed)
            vectors = torch.randn(9, 4, generator=generator).to(dtype)
            vectors[2] = 0
            membership = torch.rand(5, 9, generator=generator) < 0.4
            active = torch.rand(9, generator=generator) < 0.8
            usable = [u for u in range(9) if active[u] and u != 2]
            rows = vectors.double().tolist()
            for mode in ("inter", "intra"):
                expected = [
                    slow_distance(
                        [rows[u] for u in usable if membership[k, u]],
                        [rows[u] for u in usable if not membership[k, u]],
                        mode,
                    )
                    for k in range(5)
                ]
                values = average_prototype_distance(vectors, membership, mode, active)
                assert values.tolist() == approx(expected)

    def test_not_slot_against_slot_and_absent_classes_change_nothing(self):
        vectors = torch.eye(2)
        present = average_prototype_distance(vectors, torch.eye(2, dtype=torch.bool))
        assert present.tolist() == [1, 1]
        with_absent = torch.zeros(5, 2, dtype=torch.bool)
        with_absent[[1, 3]] = torch.eye(2, dtype=torch.bool)
        assert average_prototype_distance(vectors, with_absent).nanmean() == present.mean()

    def test_shared_units_are_not_among_the_others(self):
        # unit 1 belongs to both classes: each compares its two units with the one left
        vectors = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        membership = torch.tensor([[True, True, False], [False, True, True]])
        assert average_prototype_distance(vectors, membership).tolist() == [1, 0.5]
        everything = torch.ones(1, 3, dtype=torch.bool)
        assert average_prototype_distance(vectors, everything).isnan().all()

    def test_ends(self):
        same, opposite = torch.ones(2, 3), torch.tensor([[1.0, 2.0], [-2.0, -4.0]])
        both, one = torch.tensor([[True, True]]), torch.tensor([[True, False]])
        assert average_prototype_distance(same, one).tolist() == approx([0])
        assert average_prototype_distance(same, both, "intra").tolist() == approx([0])
        assert average_prototype_distance(opposite, one).tolist() == approx([2])
        assert average_prototype_distance(opposite, both, "intra").tolist() == approx([2])
        assert average_prototype_distance(same, one, "intra").isnan().all()  # a single unit
        for values in (average_prototype_distance(torch.rand(30, 1), torch.rand(8, 30) < 0.5, m) for m in MODES):
            assert ((values >= 0) & (values <= 2)).all()

    def test_small_distances_are_kept(self):
        vectors = torch.tensor([[1.0, 0.0], [1.0, 1e-4]], dtype=torch.float64)
        value = average_prototype_distance(vectors, torch.tensor([[True, False]]))
        assert value.item() == pytest.approx(5e-9, abs=tolerance(10, dtype=torch.float64))

    def test_scale_and_relabelling_change_nothing(self):
        generator = torch.Generator().manual_seed(7)
        vectors = torch.randn(8, 3, generator=generator, dtype=torch.float64)
        membership, active = torch.rand(4, 8, generator=generator) < 0.5, torch.rand(8, generator=generator) < 0.8
        order = torch.randperm(8, generator=generator)
        scale = torch.rand(8, 1, generator=generator, dtype=torch.float64) + 0.1
        for mode in MODES:
            expected = average_prototype_distance(vectors, membership, mode, active).tolist()
            relabelled = average_prototype_distance(vectors[order], membership[:, order], mode, active[order])
            assert relabelled.tolist() == approx(expected)
            assert average_prototype_distance(vectors * scale, membership, mode, active).tolist() == approx(expected)
            strided = vectors.T.contiguous().T
            assert average_prototype_distance(strided, membership, mode, active).tolist() == approx(expected)
            for tiny in (1e-200, 1e200):
                assert average_prototype_distance(vectors * tiny, membership, mode, active).tolist() == approx(expected)

    @pytest.mark.parametrize("bad", [NAN, math.inf])
    def test_not_finite(self, bad):
        vectors = VECTORS.clone()
        vectors[3, 0] = bad
        assert average_prototype_distance(vectors, MEMBERSHIP).isnan().all()
        assert average_prototype_distance(vectors, MEMBERSHIP, "intra").tolist() == close([1, NAN, NAN])
        active = torch.tensor([True, True, True, False])
        # without unit 3: {0, 1} against {2}, {1} against {0, 2}
        assert average_prototype_distance(vectors, MEMBERSHIP, "inter", active).tolist() == close([0.5, 1, NAN])

    def test_errors(self):
        with pytest.raises(ValueError, match="`vectors` to be of shape"):
            average_prototype_distance(VECTORS[0], MEMBERSHIP)
        with pytest.raises(ValueError, match=r"`membership` to be of shape \(K, 4\) and dtype int64"):
            average_prototype_distance(VECTORS, MEMBERSHIP.float())
        with pytest.raises(ValueError, match="`active` to be of shape"):
            average_prototype_distance(VECTORS, MEMBERSHIP, active=torch.ones(3, dtype=torch.bool))
        with pytest.raises(ValueError, match="`mode` to be one of"):
            average_prototype_distance(VECTORS, MEMBERSHIP, mode="between")


MODES = ("inter", "intra")
FEATURES = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
LABELS = torch.tensor([0, 0, 1, 1])


class TestAverageFeatureDistance:
    def test_hand_case(self):
        # every pair: (1 + .4 + 1 + .4) / 4 from either side; a repeated feature counts twice
        assert average_feature_distance(FEATURES, LABELS, 2).tolist() == close([0.7, 0.7])
        assert average_feature_distance(FEATURES, LABELS, 2, "intra").tolist() == close([0, 0.2])

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_slow_oracle(self, dtype):
        for seed in range(3):
            generator = torch.Generator().manual_seed(seed)
            features = torch.randn(15, 4, generator=generator).to(dtype)
            labels = torch.randint(4, (15,), generator=generator)
            features[3], features[5, 1], features[6, 0] = 0, NAN, math.inf
            rows = [(k, row) for i, (k, row) in enumerate(zip(labels.tolist(), features.tolist(), strict=True))]
            rows = [(k, row) for i, (k, row) in enumerate(rows) if i not in (3, 5, 6)]
            for mode in MODES:
                expected = [
                    slow_distance(
                        [row for label, row in rows if label == k], [r for label, r in rows if label != k], mode
                    )
                    for k in range(5)
                ]
                assert average_feature_distance(features, labels, 5, mode).tolist() == approx(expected)

    def test_undefined(self):
        one_class = average_feature_distance(FEATURES, torch.zeros(4, dtype=torch.int64), 2)
        assert one_class.isnan().all()
        single = average_feature_distance(FEATURES[:1], LABELS[:1], 2, "intra")
        assert single.isnan().all()
        assert average_feature_distance(FEATURES[:0], LABELS[:0], 2).isnan().all()

    def test_errors(self):
        with pytest.raises(ValueError, match="`features` to be of shape"):
            average_feature_distance(FEATURES[0], LABELS, 2)
        with pytest.raises(ValueError, match="`labels` to be of shape"):
            average_feature_distance(FEATURES, LABELS[:2], 2)
        with pytest.raises(ValueError, match="`mode` to be one of"):
            average_feature_distance(FEATURES, LABELS, 2, mode="between")


class TestNearestFeatures:
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_peak_of_a_grid_that_is_not_square(self, dtype):
        # channel 0 holds the row, channel 1 the column
        latent = torch.stack(torch.meshgrid(torch.arange(2), torch.arange(5), indexing="ij")).to(dtype)[None]
        maps = torch.zeros(1, 3, 2, 5, dtype=dtype)
        maps[0, 0, 1, 4], maps[0, 1, 0, 3], maps[0, 2, 1, 0] = 1, 1, 1
        features = nearest_features(latent, maps)
        assert features.dtype == dtype
        assert features.tolist() == [[[1, 4], [0, 3], [1, 0]]]

    def test_ties_and_flat_maps_take_the_first_cell(self):
        latent = torch.arange(6.0).view(1, 1, 2, 3)
        maps = torch.tensor([[[[0.0, 2, 2], [2, 0, 0]], [[5.0, 5, 5], [5, 5, 5]]]])
        assert nearest_features(latent, maps).tolist() == [[[1], [0]]]

    def test_another_grid(self):
        # centres of 2 columns lie at 1/4 and 3/4, that is in cells 1 and 3 (of 4: 3/4 * 4 = 3); rows alike
        latent = torch.arange(16.0).view(1, 1, 4, 4)
        maps = torch.zeros(1, 2, 2, 2)
        maps[0, 0, 0, 0], maps[0, 1, 1, 0] = 1, 1
        assert nearest_features(latent, maps).flatten().tolist() == [5, 13]
        # the other way round, 4 columns onto 2: cells 0, 0, 1, 1
        fine = torch.eye(16).view(1, 16, 4, 4)
        coarse = nearest_features(torch.arange(4.0).view(1, 1, 2, 2), fine).flatten()
        assert coarse.tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]

    @pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
    def test_maps_that_are_not_finite(self, bad):
        maps = torch.rand(1, 2, 2, 2, generator=torch.Generator().manual_seed(0))
        maps[0, 1, 1, 1] = bad
        features = nearest_features(torch.ones(1, 3, 2, 2), maps)
        assert features[0, 0].tolist() == [1, 1, 1]
        assert features[0, 1].isnan().all()

    def test_no_image(self):
        assert nearest_features(torch.zeros(0, 3, 2, 2), torch.zeros(0, 4, 2, 2)).shape == (0, 4, 3)

    def test_errors(self):
        with pytest.raises(ValueError, match="`latent` to be of shape"):
            nearest_features(torch.zeros(3, 2, 2), torch.zeros(1, 1, 2, 2))
        with pytest.raises(ValueError, match="`maps` to be of shape"):
            nearest_features(torch.zeros(2, 3, 2, 2), torch.zeros(1, 1, 2, 2))
