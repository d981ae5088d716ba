"""The share of its own part in what changes the score of a concept."""

import math
from functools import partial

import torch

from protometry.metrics import ConceptLocality
from tests.metrics.tester import Case, MetricTests, approx, mean, nowhere_finite, updated

# concepts 0 to 2 are units 2, 4 and 3, since unit 0 is not active; concept 3 is no unit, and 2 is about no part
CONCEPTS, ACTIVE, UNITS = torch.tensor([2, -1, 0, 2, 1]), torch.arange(5) > 0, {0: 2, 1: 4}
PARTS = torch.tensor([2, 0, -1, 1])


def slow(record):
    values = []
    for concept, unit in UNITS.items():
        own, total = 0.0, 0.0
        for changes, visible in zip(record["score_changes"], record["visible"], strict=True):
            row = changes[unit].tolist()
            if visible.all() and all(map(math.isfinite, row)):
                own, total = own + row[PARTS[concept]], total + sum(row)
        values.append(own / total if total else math.nan)
    return mean(values)


def record():
    generator = torch.Generator().manual_seed(0)
    changes = torch.rand(13, 5, 3, generator=generator)
    changes[4], changes[7, 3, 0] = math.nan, math.inf
    return {"score_changes": changes, "visible": torch.rand(13, 3, generator=generator) < 0.9}


RECORD = record()


class TestLocality(MetricTests):
    cases = {
        "locality": Case(
            partial(ConceptLocality, CONCEPTS, 4, ACTIVE, parts=PARTS, num_parts=3),
            RECORD, slow, nowhere_finite(RECORD), 4 + 2 * 13,
        )
    }  # fmt: skip


def test_by_hand():
    """Of three concepts, two are about parts of their own; the third, about the second part, never changes."""
    changes = torch.tensor([[[6.0, 2, 0], [1, 1, 0], [0, 0, 0]], [[0, 0, 2], [5, 3, 0], [0, 0, 0]]])
    inputs = {"score_changes": changes, "visible": torch.ones(2, 3, dtype=torch.bool)}
    metric = updated(ConceptLocality(torch.arange(3), 3, parts=torch.tensor([0, 1, 1]), num_parts=3), inputs)
    assert metric.values().tolist() == approx([0.6, 0.4, math.nan])
    summary = metric.summary()
    assert (summary["value"], summary["chance"]) == approx((0.5, 1 / 3))
    assert summary["other_concepts"] == approx((0.6 + 0.2) / 2)  # of the second in part 0, of the first in part 1
    assert summary["lift_over_other_concepts"] == approx(0.1)
    scaled = inputs | {"score_changes": changes * torch.tensor([7.0, 0.5, 1])[:, None]}
    assert updated(metric.clone(), scaled).values().tolist() == approx([0.6, 0.4, math.nan])


def test_an_image_counts_if_all_parts_are_visible():
    metric = ConceptLocality(torch.tensor([0]), 1, parts=torch.tensor([0]), num_parts=2)
    metric.update(torch.tensor([[[0.0, 1]], [[3, 1]]]), torch.tensor([[False, True], [True, True]]))
    assert (metric.summary()["value"], metric.summary()["skipped"]) == (0.75, 1)
