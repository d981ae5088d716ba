from functools import partial

import pytest
import torch

from protometry.metrics import PartStability
from tests.metrics.alignment.parts import (
    HALF,
    PARTS,
    SIZE,
    UNITS,
    AgainstRandomPeaksTests,
    found,
    images_of,
    owned_record,
    slots,
)
from tests.metrics.tester import Case, check_undefined, mean, updated

RECORD = owned_record()
HIDDEN = {"part_visible": torch.zeros(13, PARTS, dtype=torch.bool)}  # 25 owned slots are then left out


def slow_stability(nonempty_only):
    def oracle(record):
        equal = {unit: [] for unit in range(UNITS)}
        for image, slot, unit in slots(record):
            clean = found(record, "owned_peaks", image, slot)
            if any(clean) or (not nonempty_only and clean != [None] * PARTS):
                equal[unit].append(clean == found(record, "perturbed_owned_peaks", image, slot))
        return mean([mean(entries) for entries in equal.values() if entries])

    return oracle


build_stability = partial(PartStability, UNITS, SIZE, HALF)


build_nonempty = partial(build_stability, nonempty_only=True)


class TestPartStability(AgainstRandomPeaksTests):
    cases = {
        "stability": Case(build_stability, RECORD, slow_stability(False), HIDDEN, UNITS + 25),
        "stability_nonempty": Case(build_nonempty, RECORD, slow_stability(True), HIDDEN, UNITS + 25),
    }

    def images(self, record):
        return [count / 3 for count in super().images(record)]  # each is seen under three draws

    def test_hand_case(self):
        # four images; in one the noise moves the peak off the part
        record = images_of((4, 4)) | {"perturbed_owned_peaks": torch.full((4, 1, 2), 101)}
        record["perturbed_owned_peaks"][2] = 10
        assert updated(PartStability(1), record).compute() == 0.75

    def test_a_unit_on_background_is_stable_only_in_the_paper(self):
        record = images_of((0, 4)) | {"perturbed_owned_peaks": torch.full((4, 1, 2), 10)}
        summary = updated(PartStability(1), record).summary()
        assert (summary["value"], summary["coverage"], summary["skipped"]) == (1, 0, 0)
        metric = PartStability(1, nonempty_only=True)
        check_undefined(lambda: PartStability(1, nonempty_only=True), record, skipped=1 + 4)
        assert updated(metric, record).summary()["coverage"] == 0

    def test_coverage(self):
        record = owned_record()
        vectors = [found(record, "owned_peaks", image, slot) for image, slot, _ in slots(record)]
        vectors = [vector for vector in vectors if vector != [None] * PARTS]
        for build in (build_stability, build_nonempty):
            assert updated(build(), record).summary()["coverage"] == pytest.approx(mean([any(v) for v in vectors]))
