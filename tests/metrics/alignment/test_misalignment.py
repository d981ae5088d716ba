import math
from functools import partial

import pytest
import torch

from protometry.metrics import SpatialMisalignment
from protometry.metrics.functional import (
    accuracy_change,
    misalignment_activation_change,
    misalignment_rank_change,
)
from tests.metrics.tester import NAN, Case, MetricTests, images, mean, rows, same, updated

PARTS = ("pac", "plc", "prc", "ac")
OWNER = torch.tensor([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]).bool()
ACTIVE = torch.tensor([True, True, True, True, True, False])


def record():
    generator = torch.Generator().manual_seed(21)
    scores, perturbed = (torch.randn(13, 6, generator=generator) for _ in range(2))
    logits, perturbed_logits = (torch.randn(13, 3, generator=generator) for _ in range(2))
    maps, perturbed_maps = (torch.randn(13, 6, 7, generator=generator) for _ in range(2))
    target = torch.randint(5, (13,), generator=generator)
    scores[3, 1], logits[4, 0], maps[5], target[6], perturbed[7, 3], maps[8, 0, 0] = NAN, math.inf, 1, -1, math.inf, NAN
    scores[9, 5] = NAN  # of the inactive unit: nobody sees it
    return {
        "scores": scores, "perturbed_scores": perturbed, "target_ids": target, "target_maps": maps,
        "perturbed_target_maps": perturbed_maps, "logits": logits, "perturbed_logits": perturbed_logits,
        "labels": torch.randint(3, (13,), generator=generator),
    }  # fmt: skip


class Part(SpatialMisalignment):
    """One of the four numbers, as if it were a metric of its own."""

    unit = "as its part"

    def __init__(self, part, **options):
        super().__init__(OWNER, ACTIVE, quantile=0.8, **options)
        self.part = part

    def compute(self):
        return super().compute()[self.part]

    def summary(self):
        return super().summary()[self.part]


def finite(*lists):
    return all(math.isfinite(value) for values in lists for value in values)


def slow_pac(scores, perturbed, unit):
    return 1 - max(perturbed[unit], 0) / scores[unit] if scores[unit] > 0 else NAN


def slow_plc(maps, perturbed):
    if min(maps) == max(maps) or min(perturbed) == max(perturbed):
        return NAN
    # place 32.8 of 41 sorted values: what lies above the 33rd
    one, two = ({i for i, v in enumerate(values) if v > sorted(values)[32]} for values in (maps, perturbed))
    return 1 - len(one & two) / len(one | two)


def overtaken(row, unit, label):
    """How many units of other classes score above the unit."""
    strangers = [u for u in range(6) if ACTIVE[u] and not OWNER[u, label]]
    return sum(max(row[u], 0) > max(row[unit], 0) for u in strangers)


def slow_values(data, image):
    """The four changes of an image, NaN where they are undefined."""
    one = {name: values[image].flatten().tolist() for name, values in data.items()}
    (unit,), (label,) = one["target_ids"], one["labels"]
    if unit < 0:
        return dict.fromkeys(PARTS, NAN)
    scores, maps, logits = ((one[name], one[f"perturbed_{name}"]) for name in ("scores", "target_maps", "logits"))
    ranked = [[value for value, used in zip(row, ACTIVE, strict=True) if used] for row in scores]
    return {
        "pac": slow_pac(*scores, unit) if finite([row[unit] for row in scores]) else NAN,
        "plc": slow_plc(*maps) if finite(*maps) else NAN,
        "prc": overtaken(scores[1], unit, label) - overtaken(scores[0], unit, label) if finite(*ranked) else NAN,
        "ac": (max(logits[0]) == logits[0][label]) - (max(logits[1]) == logits[1][label]) if finite(*logits) else NAN,
    }


def oracle(part, data):
    return mean([slow_values(data, image)[part] for image in range(images(data))])


class TestEveryPart(MetricTests):
    cases = {
        part: Case(partial(Part, part), record(), partial(oracle, part), {"target_ids": torch.full((13,), -1)}, 13)
        for part in PARTS
    }

    def test_each_counts_its_own_images(self, case):
        summary = updated(case.build(), case.record).summary()
        assert 0 < summary["n"] == sum(math.isfinite(case.oracle(rows(case.record, [i]))) for i in range(13)) < 13
        assert summary["n"] + summary["skipped"] == 13

    def test_no_perturbation_no_change(self, case):
        clean = {f"perturbed_{name}": case.record[name] for name in ("scores", "target_maps", "logits")}
        assert updated(case.build(), case.record | clean).compute() == 0

    def test_multilabel(self, case):
        sets = case.record | {"labels": torch.nn.functional.one_hot(case.record["labels"], 3).bool()}
        values = [updated(case.build(), data).compute() for data in (sets, case.record)]
        assert same(*values) or case.build().part == "ac"


def test_hand_case():
    # one image: score 2 → .8, overtaken by two units of the other class, still correct, one of two region cells moves
    maps = torch.arange(20.0).view(1, 4, 5)
    moved = maps.clone()
    moved[0, 0, 0], moved[0, 3, 3] = 18, 0
    metric = SpatialMisalignment(torch.tensor([[True, False], [False, True], [False, True]]))
    logits = torch.tensor([[2.0, 1.0]])
    scores, perturbed = torch.tensor([[2.0, 1.0, 0.5]]), torch.tensor([[0.8, 1.0, 0.9]])
    metric.update(scores, perturbed, torch.tensor([0]), maps, moved, logits, logits.flip(1), torch.tensor([0]))
    assert {part: value.item() for part, value in metric.compute().items()} == pytest.approx(
        {"pac": 0.6, "plc": 2 / 3, "prc": 2, "ac": 1}
    )
    # a second image without any change: s² = x²/2, half width t x / 2 with t = 12.706205
    metric.update(scores, scores, torch.tensor([0]), maps, maps, logits, logits, torch.tensor([0]))
    summary = metric.summary()
    assert summary["prc"] == pytest.approx({"value": 1, "low": 1 - 12.706205, "high": 13.706205, "n": 2, "skipped": 0})
    assert [(summary[part]["low"] >= -1, summary[part]["high"] <= 1) for part in ("plc", "ac")] == [(True, True)] * 2
    assert [summary[part]["value"] for part in PARTS] == pytest.approx([0.3, 1 / 3, 1, 0.5])


SCORES, PERTURBED = torch.tensor([[2.0, 1.0, 0.5]]), torch.tensor([[0.8, 1.0, 0.9]])
STRANGERS = torch.tensor([[True, False], [False, True], [False, True]])
TARGET, LABEL = torch.tensor([0]), torch.tensor([0])
MAPS = torch.arange(20.0).view(1, 4, 5)


def test_activation_change_by_hand():
    assert misalignment_activation_change(SCORES, PERTURBED, TARGET).item() == pytest.approx(0.6)
    # signed: the score of unit 2 rises from 0.5 to 0.9
    assert misalignment_activation_change(SCORES, PERTURBED, TARGET + 2).item() == pytest.approx(-0.8)
    assert misalignment_activation_change(SCORES, -SCORES, TARGET).tolist() == [1]
    for clean in (0.0, -1.0, NAN, math.inf):
        scores = torch.tensor([[clean, 1.0, 1.0]])
        assert misalignment_activation_change(scores, PERTURBED, TARGET).isnan().all()


def test_rank_change_by_hand():
    def change(perturbed, labels=LABEL, owner=STRANGERS, active=None):
        return misalignment_rank_change(SCORES, perturbed, TARGET, labels, owner, active).tolist()

    assert (change(PERTURBED), change(PERTURBED, active=torch.tensor([True, False, True]))) == ([2], [1])
    # units of the image's own class do not overtake
    assert change(PERTURBED, owner=torch.tensor([[True, False], [True, False], [False, True]])) == [1]
    assert change(PERTURBED, labels=torch.tensor([[True, True]])) == [0]
    # neither do equal scores, nor, clipped to equal ones, scores below 0
    assert (change(torch.ones(1, 3)), change(torch.tensor([[-2.0, -1, -1]]))) == ([0], [0])


def test_accuracy_change_by_hand():
    logits = torch.tensor([[2.0, 1.0], [1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [NAN, 1.0]])
    after = torch.tensor([[1.0, 2.0], [2.0, 1.0], [3.0, 1.0], [1.0, 3.0], [1.0, 2.0]])
    labels = torch.zeros(5, dtype=torch.int64)
    assert accuracy_change(logits, after, labels).tolist() == pytest.approx([1, -1, 0, 0, NAN], nan_ok=True)
    logits, labels = torch.tensor([[1.0, -1.0, 2.0]]), torch.tensor([[True, False, True]])
    assert accuracy_change(logits, logits, labels).tolist() == [0]
    assert accuracy_change(logits, -logits, labels).tolist() == [1]
    assert accuracy_change(-logits, logits, labels).tolist() == [-1]
