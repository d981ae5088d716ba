import math
from functools import partial

import pytest
import torch

from protometry.metrics import PartPurity
from protometry.metrics.alignment.part_purity import top_images
from tests.metrics.alignment.parts import PARTS, UNITS, AgainstRandomPeaksTests, parts_record
from tests.metrics.tester import NAN, Case, mean, rows, updated

GROUPS = [[0, 2], [1]]
ACTIVE = torch.tensor([True, True, True, False, True, True])


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
    random = torch.randint(0, 30, (13, UNITS, 2), generator=generator)
    for values in (corners, scores, random):
        values[7] = values[1]
    boxes, random = (torch.cat([first, first + 15], dim=2) for first in (corners, random))
    return {"scores": scores, "unit_boxes": boxes, "random_boxes": random, "sample_ids": ids} | record


def slow_purity(record, least=1, k=4):
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
        if any(len(entries) >= least for entries in seen):
            values.append(max(mean(entries) for entries in seen if len(entries) >= least))
    return mean(values)


build_purity = partial(PartPurity, UNITS, PARTS, k=4, active=ACTIVE, groups=GROUPS)


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


class TestPartPurity(AgainstRandomPeaksTests):
    control = (("random_boxes", "unit_boxes"),)

    def images(self, record):
        return (record["scores"].isfinite() & ACTIVE).sum(dim=0).tolist()

    # 2 scores that are not finite are left out
    cases = {
        f"part_purity_{least}": Case(
            partial(build_purity, min_visible=least),
            purity_record(),
            partial(slow_purity, least=least),
            {"part_visible": torch.zeros(13, PARTS, dtype=torch.bool)},
            UNITS + 2,
        )
        for least in (1, 3)
    }

    def test_hand_case(self):
        record = purity_case([[1, 0], [1, 0], [0, 0], [1, 1]], [[1, 1], [1, 1], [1, 0], [1, 0]])
        assert updated(PartPurity(1, 2), record).compute() == 0.75
        # a part inside but out of sight is not a hit
        assert updated(PartPurity(1, 1), purity_case([[0], [0], [0], [1]], [[1], [1], [0], [0]])).compute() == 0

    def test_only_the_best_images_count(self):
        record = purity_case([[0], [1], [1], [0]], [[1]] * 4, [1.0, 3.0, 2.0, 2.5])
        assert updated(PartPurity(1, 1, k=1), record).compute() == 1
        assert updated(PartPurity(1, 1, k=2), record).compute() == 0.5
        assert updated(PartPurity(1, 1, k=3), record, 1).compute() == pytest.approx(2 / 3)
        values = [updated(PartPurity(1, 1, k=1, least_images=n), record).values().tolist() for n in (4, 5)]
        assert str(values) == "[[1.0], [nan]]"
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
        assert updated(PartPurity(1, 2, min_visible=11), purity_case(inside, visible)).values().isnan().all()
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


class TestTopImages:
    def top(self, scores, ids, k):
        flags = torch.arange(len(scores))[None, :, None]
        best = top_images(torch.tensor([scores]), torch.tensor([ids]), flags, k)
        return [part.flatten().tolist() for part in best]

    def test_by_hand(self):
        assert self.top([1.0, 3.0, 3.0, 3.0], [5, 9, 2, 7], 2) == [[3, 3], [2, 7], [2, 3]]  # ties: the smaller id
        assert self.top([1.0, 3.0, 3.0, 2.0], [5, 9, 9, 7], 3) == [[3, 2, 1], [9, 7, 5], [1, 3, 0]]
        assert self.top([4.0, 3.0, 5.0], [9, 8, 9], 2) == [[5, 3], [9, 8], [2, 1]]  # the best of two copies
        scores, ids, _ = self.top([-math.inf, 0.0, -math.inf, -7.0], [-1, 4, -1, 3], 3)
        assert (scores, ids[:2]) == ([0, -7, -math.inf], [4, 3])  # empty slots come last
