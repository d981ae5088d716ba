import math
import warnings

import pytest
import torch

from metrics import PartConsistency, PartPurity, PartStability
from tests.metrics.tester import (
    check_attributes,
    check_collection,
    check_protocol,
    check_splits,
    check_two_processes,
    check_undefined,
    images,
    rows,
    same,
    same_summaries,
    updated,
)

NAN = math.nan
UNITS, PARTS, SIZE, HALF = 6, 3, (40, 56), 6
GROUPS = [[0, 2], [1]]
ACTIVE = torch.tensor([True, True, True, False, True, True])


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
    return {"owned_ids": owned, "owned_peaks": peaks, "perturbed_owned_peaks": perturbed} | record


def consistency_record():
    return {name: value for name, value in owned_record().items() if name != "perturbed_owned_peaks"}


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


def mean(values):
    return sum(values) / len(values) if values else NAN


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


def slow_stability(nonempty_only):
    def oracle(record):
        equal = {unit: [] for unit in range(UNITS)}
        for image, slot, unit in slots(record):
            clean = found(record, "owned_peaks", image, slot)
            if any(clean) or (not nonempty_only and clean != [None] * PARTS):
                equal[unit].append(clean == found(record, "perturbed_owned_peaks", image, slot))
        return mean([mean(entries) for entries in equal.values() if entries])

    return oracle


def purity_record():
    generator = torch.Generator().manual_seed(12)
    record = parts_record(generator, 13)
    corners = torch.randint(0, 30, (13, UNITS, 2), generator=generator)
    scores = torch.randint(0, 4, (13, UNITS), generator=generator).float()  # ties
    scores[4, 0], scores[5, 1], scores[6, 3] = NAN, math.inf, NAN
    ids = torch.randperm(13, generator=generator) * 2**58
    ids[7] = ids[1]  # one image twice
    for name in ("part_locations", "part_visible"):
        record[name][7] = record[name][1]
    corners[7], scores[7] = corners[1], scores[1]
    boxes = torch.cat([corners, corners + 15], dim=2)
    return {"scores": scores, "unit_boxes": boxes, "sample_ids": ids} | record


def slow_purity(record, k=4):
    values = []
    for unit in range(UNITS):
        if not ACTIVE[unit]:
            continue
        ranked = {}
        for image, (score, key) in enumerate(
            zip(record["scores"][:, unit].tolist(), record["sample_ids"].tolist(), strict=True)
        ):
            if math.isfinite(score):
                ranked[key] = (-score, key, image)
        seen = [[] for _ in GROUPS]
        for _, _, image in sorted(ranked.values())[:k]:
            x0, y0, x1, y1 = record["unit_boxes"][image, unit].tolist()
            for group, parts in enumerate(GROUPS):
                visible = [part for part in parts if record["part_visible"][image, part]]
                points = [record["part_locations"][image, part].tolist() for part in visible]
                if visible:
                    seen[group].append(any(x0 <= math.floor(x) <= x1 and y0 <= math.floor(y) <= y1 for x, y in points))
        if any(seen):
            values.append(max(mean(entries) for entries in seen if entries))
    return mean(values)


def build_consistency():
    return PartConsistency(UNITS, PARTS, SIZE, HALF, threshold=0.6)


def build_stability():
    return PartStability(UNITS, SIZE, HALF)


def build_nonempty():
    return PartStability(UNITS, SIZE, HALF, nonempty_only=True)


def build_purity():
    return PartPurity(UNITS, PARTS, k=4, active=ACTIVE, groups=GROUPS)


CASES = {
    "consistency": (build_consistency, consistency_record(), slow_consistency),
    "stability": (build_stability, owned_record(), slow_stability(False)),
    "stability_nonempty": (build_nonempty, owned_record(), slow_stability(True)),
    "purity": (build_purity, purity_record(), slow_purity),
}


@pytest.mark.parametrize("name", CASES)
class TestEveryClass:
    def test_attributes(self, name):
        metric = CASES[name][0]()
        check_attributes(metric)
        assert (metric.name, metric.unit, metric.averaged_over) == (name, "fraction", "unit")
        assert metric.higher_is_better is True

    def test_splits(self, name):
        check_splits(*CASES[name])

    def test_protocol(self, name):
        build, record, _ = CASES[name]
        check_protocol(build, record)
        check_collection(build, record)

    def test_undefined(self, name):
        build, record, _ = CASES[name]
        hidden = record | {"part_visible": torch.zeros_like(record["part_visible"])}
        # unit by unit, and what was left out: 25 owned slots, or 2 scores that are not finite
        left_out = {"consistency": 0, "stability": 25, "stability_nonempty": 25, "purity": 2}
        check_undefined(build, hidden, skipped=UNITS + left_out[name])

    def test_two_processes(self, name, ddp_pool):
        build, record, _ = CASES[name]
        check_two_processes(ddp_pool, build, record)


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


class TestConsistency:
    @pytest.mark.parametrize(("counts", "value"), [((7, 8), 1), ((1, 4), 0), ((3, 4), 0), ((4, 5), 1)])
    def test_hand_cases(self, counts, value):
        metric = updated(PartConsistency(1, 1), images_of(counts))
        assert (metric.hits.tolist(), metric.visible.tolist()) == ([[counts[0]]], [[counts[1]]])
        assert metric.compute() == value

    def test_window(self):
        # 36 pixels on either side, inclusive, of floored points
        record = images_of((1, 1))
        for offset, hit in ((36.0, 1), (36.9, 1), (37.0, 0), (-36.0, 1), (-36.1, 0)):
            for axis in (0, 1):
                record["part_locations"][:] = 100.0
                record["part_locations"][..., axis] += offset
                assert updated(PartConsistency(1, 1), record).compute() == hit, (offset, axis)

    def test_padding_is_no_unit(self):
        record = images_of((2, 2)) | {"owned_ids": torch.tensor([[0], [-1]])}
        metric = updated(PartConsistency(2, 1), record)
        assert (metric.hits.tolist(), metric.visible.tolist()) == ([[1], [0]], [[1], [0]])
        assert metric.summary()["skipped"] == 1  # the unit that is never owned

    def test_errors(self):
        record = images_of((1, 2))
        for name, value, text in (
            ("owned_ids", torch.zeros(2, 1), r"`owned_ids` to be of shape \(B, M\) and dtype int64"),
            ("owned_peaks", torch.zeros(2, 1, 2), r"`owned_peaks` to be of shape \(2, 1, 2\) and dtype int64"),
            ("part_locations", torch.zeros(2, 3, 2), r"`part_locations` to be of shape \(2, 1, 2\)"),
            ("part_visible", torch.zeros(2, 1), r"`part_visible` to be of shape \(2, N\) and dtype bool"),
        ):
            with pytest.raises(ValueError, match=text):
                updated(PartConsistency(1, 1), record | {name: value})


class TestStability:
    def test_hand_case(self):
        # four images; in one the noise moves the peak off the part
        record = images_of((4, 4)) | {"perturbed_owned_peaks": torch.full((4, 1, 2), 101)}
        record["perturbed_owned_peaks"][2] = 10
        assert updated(PartStability(1), record).compute() == 0.75

    def test_draws_add_up(self):
        metric = build_stability()
        for _ in range(3):
            updated(metric, owned_record())
        assert same(metric.compute(), slow_stability(False)(owned_record()))
        assert metric.evaluated == 3 * updated(build_stability(), owned_record()).evaluated

    def test_no_noise_changes_nothing(self):
        record = owned_record()
        record["perturbed_owned_peaks"] = record["owned_peaks"]
        assert updated(build_stability(), record).compute() == 1
        assert updated(build_nonempty(), record).compute() == 1

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

    def test_errors(self):
        with pytest.raises(ValueError, match=r"`perturbed_owned_peaks` to be of shape \(13, 2, 2\)"):
            updated(build_stability(), owned_record() | {"perturbed_owned_peaks": torch.zeros(13, 1, 2).long()})


def purity_case(inside, visible, scores=None):
    """Images of one unit with patch (0, 0, 31, 31); ids count down."""
    inside, visible = torch.tensor(inside, dtype=torch.bool), torch.tensor(visible, dtype=torch.bool)
    count = len(inside)
    return {
        "scores": torch.ones(count, 1) if scores is None else torch.tensor(scores)[:, None],
        "unit_boxes": torch.tensor([0, 0, 31, 31]).repeat(count, 1, 1),
        "part_locations": torch.where(inside, 31.9, 32.0)[:, :, None].repeat(1, 1, 2),
        "part_visible": visible,
        "sample_ids": torch.arange(count, 0, -1),
    }


class TestPurity:
    def test_hand_case(self):
        record = purity_case([[1, 0], [1, 0], [0, 0], [1, 1]], [[1, 1], [1, 1], [1, 0], [1, 0]])
        assert updated(PartPurity(1, 2), record).compute() == 0.75

    def test_only_the_best_images_count(self):
        record = purity_case([[0], [1], [1], [0]], [[1]] * 4, [1.0, 3.0, 2.0, 2.5])
        assert updated(PartPurity(1, 1, k=1), record).compute() == 1
        assert updated(PartPurity(1, 1, k=2), record).compute() == 0.5
        assert updated(PartPurity(1, 1, k=3), record, 1).compute() == pytest.approx(2 / 3)
        # equal scores: the smaller sample id, that is the later image here
        record = purity_case([[0], [0], [1]], [[1]] * 3)
        assert updated(PartPurity(1, 1, k=1), record).compute() == 1
        assert updated(PartPurity(1, 1, k=1), rows(record, torch.tensor([2, 0, 1])), 1).compute() == 1

    def test_an_image_seen_twice_counts_once(self):
        record = purity_case([[1], [0]], [[1]] * 2, [2.0, 1.0])
        twice = rows(record, torch.tensor([0, 1, 0, 0]))
        for batch in (1, 4):
            assert updated(PartPurity(1, 1, k=3), twice, batch).compute() == 0.5

    def test_a_part_seen_once_decides(self):
        # part 0: 4 of 10; part 1: seen once, and hit
        inside, visible = [[i < 4, i == 7] for i in range(10)], [[True, i == 7] for i in range(10)]
        summary = updated(PartPurity(1, 2), purity_case(inside, visible)).summary()
        assert (summary["value"], summary["share_decided_by_one_image"]) == (1, 1)
        summary = updated(PartPurity(1, 2, min_visible=2), purity_case(inside, visible)).summary()
        assert (summary["value"], summary["share_decided_by_one_image"]) == (0.4, 0)
        only = purity_case([[1]], [[1]])
        assert updated(PartPurity(1, 1), only).summary()["share_decided_by_one_image"] == 1

    def test_spread_over_units(self):
        record = purity_case([[1], [0], [1], [1]], [[1]] * 4)
        record["unit_boxes"] = record["unit_boxes"].repeat(1, 3, 1)
        record["unit_boxes"][:, 1, 2:] += 1  # unit 1 holds the part on every image, unit 2 on none
        record["unit_boxes"][:, 2] = torch.tensor([0, 0, 5, 5])
        record["scores"] = record["scores"].repeat(1, 3)
        summary = updated(PartPurity(3, 1), record).summary()
        # .75, 1, 0: mean .583333, squared deviations .027778 + .173611 + .340278 = .541667, / 2
        assert summary["value"] == pytest.approx(0.583333, abs=1e-6)
        assert summary["standard_deviation"] == pytest.approx(math.sqrt(0.541667 / 2), abs=1e-6)
        assert summary["share_above_half"] == pytest.approx(2 / 3)
        summary = updated(PartPurity(3, 1, active=torch.tensor([True, False, False])), record).summary()
        assert (summary["n"], summary["skipped"], summary["share_above_half"]) == (1, 2, 1)
        assert math.isnan(summary["standard_deviation"])

    def test_merging_processes_by_hand(self):
        record = purity_record()
        whole = updated(build_purity(), record)
        first, second = (updated(build_purity(), rows(record, part)) for part in (slice(0, 5), slice(5, None)))
        first.merge_state(second)
        assert same_summaries(first.summary(), whole.summary())
        forward = build_purity()
        for image in range(images(record)):  # many forwards in a row
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # an image without a visible part
                forward(**rows(record, slice(image, image + 1)))
        assert same_summaries(forward.summary(), whole.summary())

    def test_a_relabelled_unit_keeps_its_value(self):
        record, order = purity_record(), torch.tensor([3, 1, 5, 0, 2, 4])
        relabelled = record | {"scores": record["scores"][:, order], "unit_boxes": record["unit_boxes"][:, order]}
        metric = updated(PartPurity(UNITS, PARTS, 4, ACTIVE[order], GROUPS), relabelled)
        expected = updated(build_purity(), record).values()[order]
        torch.testing.assert_close(metric.values(), expected, rtol=0, atol=0, equal_nan=True)

    def test_errors(self):
        for arguments, text in (
            ({"k": 0}, "`k` to be at least 1, but got 0"),
            ({"num_parts": 0}, "`num_parts` to be at least 1, but got 0"),
            ({"min_visible": 0}, "`min_visible` to be at least 1, but got 0"),
            ({"active": ACTIVE}, r"`active` to be of shape \(2,\)"),
            ({"groups": [[0, 3]]}, r"`groups` to hold lists of part indices in \[0, 3\)"),
        ):
            with pytest.raises(ValueError, match=text):
                PartPurity(**({"num_units": 2, "num_parts": 3} | arguments))
        record = purity_record()
        for name, value, text in (
            ("scores", torch.zeros(13, 2), r"`scores` to be of shape \(13, 6\)"),
            ("unit_boxes", torch.zeros(13, 6, 4), r"`unit_boxes` to be of shape \(13, 6, 4\) and dtype int64"),
            ("part_locations", torch.zeros(13, 4, 2), r"`part_locations` to be of shape \(13, 3, 2\)"),
            ("part_visible", torch.zeros(13, 3), r"`part_visible` to be of shape \(13, 3\) and dtype bool"),
            ("sample_ids", torch.zeros(13), r"`sample_ids` to be of shape \(B,\) and dtype int64"),
        ):
            with pytest.raises(ValueError, match=text):
                updated(build_purity(), record | {name: value})
