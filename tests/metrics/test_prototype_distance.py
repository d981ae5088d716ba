import math
from typing import ClassVar

import pytest
import torch

from metrics import AverageFeatureDistance, AveragePrototypeDistance
from tests.metrics.tester import Case, MetricTests, check_undefined, updated

NAN = math.nan
MODES = ("inter", "intra")
CLASSES, UNITS, CHANNELS = 4, 7, 3


def prototype_record():
    generator = torch.Generator().manual_seed(0)
    unit_ids = torch.stack([torch.randperm(UNITS, generator=generator)[:2] for _ in range(11)])
    unit_ids[4] = -1
    return {"unit_ids": unit_ids, "labels": torch.randint(CLASSES - 1, (11,), generator=generator)}


def feature_record():
    generator = torch.Generator().manual_seed(1)
    latent = torch.randn(11, CHANNELS, 2, 3, generator=generator)
    latent[3] = 0
    maps = torch.randn(11, 2, 2, 3, generator=generator)
    maps[5, 1, 0, 0] = NAN
    return {"latent": latent, "maps": maps, "labels": torch.randint(CLASSES - 1, (11,), generator=generator)}


VECTORS = torch.randn(UNITS, CHANNELS, generator=torch.Generator().manual_seed(2))
ACTIVE = torch.tensor([True, True, True, True, False, True, True])


def cosine_distance(one, other):
    return 1 - sum(a * b for a, b in zip(one, other, strict=True)) / (math.hypot(*one) * math.hypot(*other))


def slow(own, others, mode):
    """Values of one class: mean over all pairs, None without a pair."""
    if mode == "inter":
        pairs = [cosine_distance(one, two) for one in own for two in others]
    else:
        pairs = [cosine_distance(one, two) for i, one in enumerate(own) for j, two in enumerate(own) if i != j]
    return [sum(pairs) / len(pairs)] if pairs else []


def mean(values):
    return sum(values) / len(values) if values else NAN


def slow_prototypes(mode):
    def oracle(record):
        members = [set() for _ in range(CLASSES)]
        for ids, label in zip(record["unit_ids"].tolist(), record["labels"].tolist(), strict=True):
            members[label] |= {unit for unit in ids if unit >= 0 and ACTIVE[unit]}
        rows, usable = VECTORS.double().tolist(), {unit for unit in range(UNITS) if ACTIVE[unit]}
        values = [slow([rows[u] for u in own], [rows[u] for u in usable - own], mode) for own in members]
        return mean([value for entry in values for value in entry])

    return oracle


def slow_features(mode):
    def oracle(record):
        features = []
        for latent, maps, label in zip(record["latent"], record["maps"], record["labels"].tolist(), strict=True):
            for grid in maps.flatten(1).tolist():
                feature = latent.flatten(1).double()[:, grid.index(max(grid))].tolist()
                if all(map(math.isfinite, grid)) and any(feature):
                    features.append((label, feature))
        values = [
            slow([f for label, f in features if label == k], [f for label, f in features if label != k], mode)
            for k in range(CLASSES)
        ]
        return mean([value for entry in values for value in entry])

    return oracle


def build_prototypes(mode):
    return lambda: AveragePrototypeDistance(VECTORS, CLASSES, mode, ACTIVE)


def build_features(mode):
    return lambda: AverageFeatureDistance(CLASSES, CHANNELS, mode)


EMPTY = {"unit_ids": torch.full((11, 2), -1)}
NO_FEATURE = {"latent": torch.zeros(11, CHANNELS, 2, 3)}


class TestEveryClass(MetricTests):
    cases: ClassVar = {
        **{
            f"apd_{mode}": Case(build_prototypes(mode), prototype_record(), slow_prototypes(mode), EMPTY, 22 + CLASSES)
            for mode in MODES
        },
        **{
            f"afd_{mode}": Case(build_features(mode), feature_record(), slow_features(mode), NO_FEATURE, 22 + CLASSES)
            for mode in MODES
        },
    }


def test_hand_cases():
    # worked out in the kernels' tests; class 2 is absent
    vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.6, 0.8]])
    for mode, value, low, high in (("inter", 0.55, 0, 2), ("intra", 0.6, 0, 2)):
        metric = AveragePrototypeDistance(vectors, 3, mode)
        metric.update(torch.tensor([[0, 1], [0, 1], [1, 3]]), torch.tensor([0, 0, 1]))
        summary = metric.summary()
        # n = 2: half width 12.706205 |difference| / 2, wider than the range
        assert [summary["value"], summary["low"], summary["high"]] == pytest.approx([value, low, high], abs=1e-3)
        assert (summary["n"], summary["skipped"]) == (2, 1)
    latent = torch.tensor([[[[1.0, 1.0]], [[0.0, 0.0]]], [[[0.0, 0.6]], [[1.0, 0.8]]]])
    maps = torch.tensor([[[[1.0, 0.0]], [[0.0, 1.0]]]]).repeat(2, 1, 1, 1)
    for mode, value in (("inter", 0.7), ("intra", 0.1)):
        metric = AverageFeatureDistance(2, 2, mode)
        metric.update(latent, maps, torch.tensor([0, 1]))
        assert metric.compute() == pytest.approx(value)


def test_what_is_left_out_is_counted():
    # an empty slot pair; a latent of zeros (2 features) and one map; one absent class each
    assert updated(build_prototypes("inter")(), prototype_record()).summary()["skipped"] == 2 + 1
    assert updated(build_features("inter")(), feature_record()).summary()["skipped"] == 3 + 1


def test_the_classes_of_units_are_noted_in_place_in_one_byte_each():
    metric = build_prototypes("inter")()
    kept = metric.membership
    for _ in range(2):
        updated(metric, prototype_record(), batch=3)
    assert metric.membership is kept
    assert (kept.dtype, kept.max().item()) == (torch.uint8, 1)


def test_a_single_class_has_nothing_to_compare_with():
    record = feature_record() | {"labels": torch.zeros(11, dtype=torch.int64)}
    check_undefined(build_features("inter"), record, skipped=3 + CLASSES)


def test_errors():
    with pytest.raises(ValueError, match="`mode` to be one of"):
        AveragePrototypeDistance(VECTORS, CLASSES, mode="between")
    with pytest.raises(ValueError, match="`mode` to be one of"):
        AverageFeatureDistance(CLASSES, CHANNELS, mode="between")
    with pytest.raises(ValueError, match="`num_classes` to be at least 1, but got 0"):
        AveragePrototypeDistance(VECTORS, 0)
    with pytest.raises(ValueError, match="`num_channels` to be at least 1, but got 0"):
        AverageFeatureDistance(CLASSES, 0)
    with pytest.raises(ValueError, match="`vectors` to be of shape"):
        AveragePrototypeDistance(VECTORS[0], CLASSES)
    with pytest.raises(ValueError, match="`active` to be of shape"):
        AveragePrototypeDistance(VECTORS, CLASSES, active=ACTIVE[:2])
    with pytest.raises(ValueError, match="`labels` to be of shape"):
        build_prototypes("inter")().update(torch.zeros(2, 1, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(ValueError, match=f"`unit_ids` to hold ids below {len(VECTORS)}"):
        build_prototypes("inter")().update(torch.tensor([[0, len(VECTORS)]]), torch.zeros(1, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"`latent` to be of shape \(B, 3, h, w\)"):
        build_features("inter")().update(torch.zeros(1, 2, 2, 2), torch.zeros(1, 1, 2, 2), torch.zeros(1).long())
