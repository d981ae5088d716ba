from typing import ClassVar

import pytest
import torch

from protometry.metrics import PartConsistency
from protometry.metrics.functional import part_consistency
from tests.metrics.alignment.parts import HALF, PARTS, SIZE, UNITS, found, images_of, owned_record, slots
from tests.metrics.tester import NAN, Case, MetricTests, mean, updated

RECORD = {name: value for name, value in owned_record().items() if name != "perturbed_owned_peaks"}
HIDDEN = {"part_visible": torch.zeros(13, PARTS, dtype=torch.bool)}


def slow_consistency(record):
    vectors = {unit: [] for unit in range(UNITS)}
    for image, slot, unit in slots(record):
        vectors[unit].append(found(record, "owned_peaks", image, slot))
    values = []
    for entries in vectors.values():
        parts = [[v[j] for v in entries if v[j] is not None] for j in range(PARTS)]
        if any(parts):
            values.append(float(max(mean(part) for part in parts if part) >= 0.6))
    return mean(values)


def build_consistency():
    return PartConsistency(UNITS, PARTS, SIZE, HALF, threshold=0.6)


class TestPartConsistency(MetricTests):
    cases: ClassVar = {
        "part_consistency": Case(build_consistency, RECORD, slow_consistency, HIDDEN, UNITS),
    }

    @pytest.mark.parametrize(("counts", "value"), [((7, 8), 1), ((1, 4), 0), ((3, 4), 0), ((4, 5), 1)])
    def test_hand_cases(self, counts, value):
        metric = updated(PartConsistency(1, 1), images_of(counts))
        assert (metric.hits.tolist(), metric.visible.tolist()) == ([[counts[0]]], [[counts[1]]])
        assert metric.compute() == value

    def test_the_best_part_decides(self):
        hits, visible = torch.tensor([[7, 1], [3, 2], [0, 0]]), torch.tensor([[8, 4], [4, 3], [0, 0]])
        assert part_consistency(hits, visible).tolist() == pytest.approx([1, 0, NAN], nan_ok=True)

    def test_the_threshold_is_inclusive(self):
        for count in range(5, 200, 5):
            four_fifths = torch.tensor([[4 * count // 5]])
            assert part_consistency(four_fifths, torch.tensor([[count]])).tolist() == [1]
            assert part_consistency(four_fifths - 1, torch.tensor([[count]])).tolist() == [0]

    def test_window(self):
        # 36 pixels on either side, inclusive, of floored points
        record = images_of((1, 1))
        for offset, hit in ((36.0, 1), (36.9, 1), (37.0, 0), (-36.0, 1), (-36.1, 0)):
            for axis in (0, 1):
                record["part_locations"][:] = 100.0
                record["part_locations"][..., axis] += offset
                assert updated(PartConsistency(1, 1), record).compute() == hit, (offset, axis)
