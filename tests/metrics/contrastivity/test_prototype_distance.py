import math

import pytest
import torch

from protometry.metrics import AveragePrototypeDistance
from protometry.metrics.functional import average_prototype_distance
from tests.metrics.contrastivity.distances import CHANNELS, CLASSES, MODES, slow_distance
from tests.metrics.tester import NAN, Case, MetricTests, approx, mean, updated
from tests.rounding import tolerance

UNITS = 7
VECTORS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.6, 0.8]])
MEMBERSHIP = torch.tensor([[1, 1, 0, 0], [0, 5, 0, 2], [0, 0, 0, 0]])
DRAWN = torch.randn(UNITS, CHANNELS, generator=torch.Generator().manual_seed(2))
ACTIVE = torch.tensor([True, True, True, True, False, True, True])
DRAWN[5] = 0  # which has no direction


def record():
    generator = torch.Generator().manual_seed(0)
    unit_ids = torch.stack([torch.randperm(UNITS, generator=generator)[:2] for _ in range(11)])
    unit_ids[4] = -1
    return {"unit_ids": unit_ids, "labels": torch.randint(CLASSES - 1, (11,), generator=generator)}


def oracle(mode):
    def slow(data):
        rows = DRAWN.double().tolist()
        usable, members = (
            {unit for unit in range(UNITS) if ACTIVE[unit] and any(rows[unit])},
            [set() for _ in range(CLASSES)],
        )
        for ids, label in zip(data["unit_ids"].tolist(), data["labels"].tolist(), strict=True):
            members[label] |= usable.intersection(ids)
        return mean([slow_distance([rows[u] for u in own], [rows[u] for u in usable - own], mode) for own in members])

    return slow


def build(mode):
    return lambda: AveragePrototypeDistance(DRAWN, CLASSES, mode, ACTIVE)


def close(values):
    return pytest.approx(values, abs=tolerance(1), nan_ok=True)  # 0.6 and 0.8 are float32


class TestBothModes(MetricTests):
    cases = {
        mode: Case(build(mode), record(), oracle(mode), {"unit_ids": torch.full((11, 2), -1)}, 22 + CLASSES)
        for mode in MODES
    }


def test_hand_cases():
    for mode, value in (("inter", 0.55), ("intra", 0.6)):  # class 2 is absent
        metric = AveragePrototypeDistance(VECTORS, 3, mode)
        metric.update(torch.tensor([[0, 1], [0, 1], [1, 3]]), torch.tensor([0, 0, 1]))
        summary = metric.summary()
        # n = 2: half width 12.706205 |difference| / 2, wider than the range
        assert [summary["value"], summary["low"], summary["high"]] == pytest.approx([value, 0, 2], abs=1e-3)
        assert (summary["n"], summary["skipped"]) == (2, 1)
    # an empty slot pair, and one absent class
    assert updated(build("inter")(), record()).summary()["skipped"] == 2 + 1


def test_the_kernel_by_hand():
    # class 0: {0, 1} against {2, 3}: (0 + .4 + 1 + .2) / 4; class 1: {1, 3} against {0, 2}: (1 + 1 + .4 + .4) / 4
    assert average_prototype_distance(VECTORS, MEMBERSHIP).tolist() == close([0.4, 0.7, NAN])
    # {(1, 0), (0, 1)} and {(0, 1), (.6, .8)}
    assert average_prototype_distance(VECTORS, MEMBERSHIP, mode="intra").tolist() == close([1, 0.2, NAN])


def test_shared_units_are_not_among_the_others():
    # unit 1 belongs to both classes: each compares its two units with the one left
    vectors = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    membership = torch.tensor([[True, True, False], [False, True, True]])
    assert average_prototype_distance(vectors, membership).tolist() == [1, 0.5]
    everything = torch.ones(1, 3, dtype=torch.bool)
    assert average_prototype_distance(vectors, everything).isnan().all()


def test_ends():
    same, opposite = torch.ones(2, 3), torch.tensor([[1.0, 2.0], [-2.0, -4.0]])
    both, one = torch.tensor([[True, True]]), torch.tensor([[True, False]])
    assert average_prototype_distance(same, one).tolist() == approx([0])
    assert average_prototype_distance(same, both, "intra").tolist() == approx([0])
    assert average_prototype_distance(opposite, one).tolist() == approx([2])
    assert average_prototype_distance(opposite, both, "intra").tolist() == approx([2])
    assert average_prototype_distance(same, one, "intra").isnan().all()  # a single unit
    for values in (average_prototype_distance(torch.rand(30, 1), torch.rand(8, 30) < 0.5, m) for m in MODES):
        assert ((values >= 0) & (values <= 2)).all()


def test_small_distances_are_kept():
    vectors = torch.tensor([[1.0, 0.0], [1.0, 1e-4]], dtype=torch.float64)
    value = average_prototype_distance(vectors, torch.tensor([[True, False]]))
    assert value.item() == pytest.approx(5e-9, abs=tolerance(10, dtype=torch.float64))


def test_scale_changes_nothing():
    generator = torch.Generator().manual_seed(7)
    vectors = torch.randn(8, 3, generator=generator, dtype=torch.float64)
    membership, active = torch.rand(4, 8, generator=generator) < 0.5, torch.rand(8, generator=generator) < 0.8
    scale = torch.rand(8, 1, generator=generator, dtype=torch.float64) + 0.1
    for mode in MODES:
        expected = average_prototype_distance(vectors, membership, mode, active).tolist()
        assert average_prototype_distance(vectors * scale, membership, mode, active).tolist() == approx(expected)
        for tiny in (1e-200, 1e200):
            assert average_prototype_distance(vectors * tiny, membership, mode, active).tolist() == approx(expected)


@pytest.mark.parametrize("bad", [NAN, math.inf])
def test_not_finite(bad):
    vectors = VECTORS.clone()
    vectors[3, 0] = bad
    assert average_prototype_distance(vectors, MEMBERSHIP).isnan().all()
    assert average_prototype_distance(vectors, MEMBERSHIP, "intra").tolist() == close([1, NAN, NAN])
    active = torch.tensor([True, True, True, False])
    # without unit 3: {0, 1} against {2}, {1} against {0, 2}
    assert average_prototype_distance(vectors, MEMBERSHIP, "inter", active).tolist() == close([0.5, 1, NAN])


def test_the_classes_of_units_are_noted_in_place_in_one_byte_each():
    metric = build("inter")()
    kept = metric.membership
    for _ in range(2):
        updated(metric, record(), batch=3)
    assert metric.membership is kept
    assert (kept.dtype, kept.max().item()) == (torch.uint8, 1)


@pytest.mark.parametrize("classes", [1, 2])
def test_without_units_of_other_classes_there_is_a_reason(classes):
    shown = {"unit_ids": torch.tensor([[0, 1], [2, 3]]).repeat(classes, 1), "labels": torch.arange(2 * classes) // 2}
    with pytest.warns(UserWarning, match=f"is NaN: .* {classes} entries, since each class has all units among"):
        assert updated(AveragePrototypeDistance(VECTORS, classes), shown).compute().isnan()
    assert updated(AveragePrototypeDistance(VECTORS, classes, "intra"), shown).compute().isfinite()
