from functools import partial

import pytest
import torch

from protometry.metrics import PartConsistency
from protometry.metrics.functional import part_consistency
from tests.metrics.alignment.parts import (
    HALF,
    PARTS,
    SIZE,
    UNITS,
    AgainstRandomPeaksTests,
    clean_record,
    found,
    images_of,
    slots,
)
from tests.metrics.tester import NAN, Case, mean, updated

RECORD = clean_record()
HIDDEN = {"part_visible": torch.zeros(13, PARTS, dtype=torch.bool)}


def slow_consistency(record, least=1):
    vectors = {unit: [] for unit in range(UNITS)}
    for image, slot, unit in slots(record):
        vectors[unit].append(found(record, "owned_peaks", image, slot))
    values = []
    for entries in vectors.values():
        if sum(any(part is not None for part in entry) for entry in entries) < least:
            continue
        parts = [[v[j] for v in entries if v[j] is not None] for j in range(PARTS)]
        if any(parts):
            values.append(float(max(mean(part) for part in parts if part) >= 0.6))
    return mean(values)


build_consistency = partial(PartConsistency, UNITS, PARTS, SIZE, HALF, threshold=0.6)


class TestPartConsistency(AgainstRandomPeaksTests):
    cases = {
        "part_consistency": Case(build_consistency, RECORD, slow_consistency, HIDDEN, UNITS),
        "of_some_units": Case(
            partial(build_consistency, least_images=6), RECORD, partial(slow_consistency, least=6), HIDDEN, UNITS
        ),
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

    def test_few_images_say_nothing(self):
        few, enough = (updated(PartConsistency(1, 1, least_images=5), images_of((n, n))) for n in (4, 5))
        assert enough.compute() == 1
        with pytest.warns(
            UserWarning, match="nothing it could measure among 1 entries, since no unit has at least 5 images"
        ):
            assert few.compute().isnan()
        assert (few.summary()["images_per_unit"], few.summary()["skipped"]) == (4, 1)

    def test_chance_falls_with_the_number_of_images(self):
        """Windows over a fifth of the image and three parts: of n images, 1 - (1 - P(at least four fifths hit))^3."""
        generator, chances = torch.Generator().manual_seed(0), []
        for n in (1, 5, 15):
            peaks = torch.randint(0, 100, (n, 1000, 2), generator=generator)
            record = {"owned_ids": torch.arange(1000).expand(n, -1), "owned_peaks": peaks}
            record |= {"part_locations": torch.tensor([[25.0, 25], [75, 25], [25, 75]]).expand(n, -1, -1)}
            record |= {"part_visible": torch.ones(n, 3, dtype=torch.bool)}
            metric = updated(PartConsistency(1000, 3, (100, 100), 22), record)  # 45 x 45 pixels: .2025
            chances.append(float(metric.compute()))
        # 1: 3 * .2025, as the windows share no peak; 5: 3 (5 * .2025^4 * .7975 + .2025^5); 15: below 1e-5
        assert chances == [pytest.approx(0.6075, abs=0.05), pytest.approx(0.021, abs=0.015), 0]
