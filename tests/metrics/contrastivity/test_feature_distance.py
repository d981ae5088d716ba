import math

import pytest
import torch

from protometry.metrics import AverageFeatureDistance
from protometry.metrics.functional import average_feature_distance, nearest_features
from tests.metrics.contrastivity.distances import CHANNELS, CLASSES, MODES, slow_distance
from tests.metrics.tester import NAN, Case, MetricTests, check_undefined, mean, updated
from tests.rounding import tolerance

FEATURES = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
LABELS = torch.tensor([0, 0, 1, 1])


def record():
    generator = torch.Generator().manual_seed(1)
    latent = torch.randn(11, CHANNELS, 2, 3, generator=generator)
    latent[3] = 0
    maps = torch.randn(11, 2, 2, 3, generator=generator)
    maps[5, 1, 0, 0] = NAN
    return {"latent": latent, "maps": maps, "labels": torch.randint(CLASSES - 1, (11,), generator=generator)}


def oracle(mode):
    def slow(data):
        features = []
        for latent, maps, label in zip(data["latent"], data["maps"], data["labels"].tolist(), strict=True):
            for grid in maps.flatten(1).tolist():
                feature = latent.flatten(1).double()[:, grid.index(max(grid))].tolist()
                if all(map(math.isfinite, grid)) and any(feature):
                    features.append((label, feature))
        return mean(slow_classes(features, CLASSES, mode))

    return slow


def slow_classes(features, classes, mode):
    """Values of all classes from pairs of a label and a feature."""
    return [
        slow_distance([f for label, f in features if label == k], [f for label, f in features if label != k], mode)
        for k in range(classes)
    ]


def build(mode):
    return lambda: AverageFeatureDistance(CLASSES, CHANNELS, mode)


def close(values):
    return pytest.approx(values, abs=tolerance(1), nan_ok=True)  # 0.6 and 0.8 are float32


class TestBothModes(MetricTests):
    cases = {
        mode: Case(build(mode), record(), oracle(mode), {"latent": torch.zeros(11, CHANNELS, 2, 3)}, 22 + CLASSES)
        for mode in MODES
    }


def test_what_is_left_out_is_counted():
    # a latent of zeros (2 features) and one map; one absent class
    assert updated(build("inter")(), record()).summary()["skipped"] == 3 + 1
    # a single class has nothing to compare with
    check_undefined(build("inter"), record() | {"labels": torch.zeros(11, dtype=torch.int64)}, skipped=3 + CLASSES)


def test_hand_cases():
    # every pair: (1 + .4 + 1 + .4) / 4 from either side; a repeated feature counts twice
    assert average_feature_distance(FEATURES, LABELS, 2).tolist() == close([0.7, 0.7])
    assert average_feature_distance(FEATURES, LABELS, 2, "intra").tolist() == close([0, 0.2])
    latent = torch.tensor([[[[1.0, 1.0]], [[0.0, 0.0]]], [[[0.0, 0.6]], [[1.0, 0.8]]]])
    maps = torch.tensor([[[[1.0, 0.0]], [[0.0, 1.0]]]]).repeat(2, 1, 1, 1)
    for mode, value in (("inter", 0.7), ("intra", 0.1)):
        metric = AverageFeatureDistance(2, 2, mode)
        metric.update(latent, maps, torch.tensor([0, 1]))
        assert metric.compute() == pytest.approx(value)


class TestNearestFeatures:
    def test_peak_of_a_grid_that_is_not_square(self):
        # channel 0 holds the row, channel 1 the column
        latent = torch.stack(torch.meshgrid(torch.arange(2.0), torch.arange(5.0), indexing="ij"))[None]
        maps = torch.zeros(1, 3, 2, 5)
        maps[0, 0, 1, 4], maps[0, 1, 0, 3], maps[0, 2, 1, 0] = 1, 1, 1
        features = nearest_features(latent, maps)
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
