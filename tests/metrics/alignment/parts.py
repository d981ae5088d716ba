"""Records of object parts and of the peaks of the units of the class of each image."""

import math

import pytest
import torch

from tests.metrics.tester import MetricTests, mean, same, updated

UNITS, PARTS, SIZE, HALF = 6, 3, (40, 56), 6


def parts_record(generator, count):
    points = torch.rand(count, PARTS, 2, generator=generator) * torch.tensor([SIZE[1], SIZE[0]])
    visible = torch.rand(count, PARTS, generator=generator) < 0.6
    visible[2] = False
    points[~visible] = -1
    return {"part_locations": points, "part_visible": visible}


def owned_record():
    """Peaks near a part in most images, so that there is something to find and to lose."""
    generator = torch.Generator().manual_seed(11)
    record = parts_record(generator, 13)
    near = record["part_locations"][:, [0, 1]].clamp(min=0).long()
    shifts = torch.randint(-8, 9, (2, 13, 2, 2), generator=generator)
    highest = torch.tensor([SIZE[1] - 1, SIZE[0] - 1])
    peaks, perturbed = (torch.minimum((near + shift).clamp(min=0), highest) for shift in shifts)
    owned = torch.randint(0, 2, (13, 1), generator=generator) * 2 + torch.arange(2)
    owned[5, 1] = -1
    random = (torch.rand(2, 13, 2, 2, generator=generator) * (highest + 1)).long()
    of_units = {"owned_ids": owned, "owned_peaks": peaks, "perturbed_owned_peaks": perturbed}
    return of_units | {"random_peaks": random[0], "perturbed_random_peaks": random[1]} | record


def clean_record():
    """What metrics of the clean image read of it."""
    return {name: value for name, value in owned_record().items() if not name.startswith("perturbed_")}


class AgainstRandomPeaksTests(MetricTests):
    """Tests of every metric with this control; a test file says what stands for what, and counts images of units."""

    control = (("random_peaks", "owned_peaks"), ("perturbed_random_peaks", "perturbed_owned_peaks"))

    def images(self, record):
        """Images of each unit on which a part is visible."""
        seen = [0] * UNITS
        for image, _, unit in slots(record):
            seen[unit] += bool(record["part_visible"][image].any())
        return seen

    def test_the_control_is_the_metric_of_random_peaks(self, case):
        random = case.record | {to: case.record[name] for name, to in self.control if name in case.record}
        metric = updated(case.build(), case.record)
        values, controls = metric.values(), metric.control_values()
        assert same(mean(controls.tolist()), case.oracle(random))
        summary, lifts = metric.summary(), (values - controls).tolist()
        assert same(summary["lift_over_random_peak"], mean(lifts))
        assert same(summary["random_peak"], mean((controls + 0 * values).tolist()))
        low, high = (summary[f"lift_over_random_peak_{end}"] for end in ("low", "high"))
        differ = len({lift for lift in lifts if not math.isnan(lift)}) > 1  # else a count has no interval
        assert low <= mean(lifts) <= high or not differ
        images = [count for count in self.images(case.record) if count]
        assert summary["images_per_unit"] == pytest.approx(sum(images) / len(images))
        without = {name: value for name, value in case.record.items() if "random" not in name}
        alone = updated(updated(case.build(), case.record, 5), without).summary()
        assert "images_per_unit" in alone
        assert not any("random_peak" in name for name in alone)


def found(record, peaks, image, slot):
    """The hit vector of the definition; None for a part out of sight."""
    x, y = record[peaks][image, slot].tolist()
    vector = []
    for (a, b), visible in zip(
        record["part_locations"][image].tolist(), record["part_visible"][image].tolist(), strict=True
    ):
        inside = abs(math.floor(a) - x) <= HALF and abs(math.floor(b) - y) <= HALF
        vector.append(inside if visible else None)
    return vector


def slots(record):
    for image, ids in enumerate(record["owned_ids"].tolist()):
        for slot, unit in enumerate(ids):
            if unit >= 0:
                yield image, slot, unit


def images_of(found_of_visible):
    """Images of unit 0 with one part, found in so many of the visible ones."""
    hits, visible = found_of_visible
    peaks = torch.full((visible, 1, 2), 100)
    points = torch.full((visible, 1, 2), 110.0)
    points[hits:] = 200.0
    return {
        "owned_ids": torch.zeros(visible, 1, dtype=torch.int64),
        "owned_peaks": peaks,
        "part_locations": points,
        "part_visible": torch.ones(visible, 1, dtype=torch.bool),
    }
