"""Whether TCAV scores tell the concepts of a class."""

import math
from functools import partial

import torch

from protometry.metrics import TCAVArea
from tests.metrics.tester import Case, MetricTests, approx, mean, nowhere_finite, updated

CLASSES, CONCEPTS, IMAGES = 5, 6, 31
HAS = (
    torch.tensor([[1, 1, 0, 0, 1, 0], [0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 1], [1, 0, 1, 0, 0, 0]])
    > 0
)


def record():
    """Class 4 has no images, class 2 no concepts, and the concepts 3 and 5 no vector and no random one."""
    generator = torch.Generator().manual_seed(0)
    derivatives = torch.randn(IMAGES, 2, CONCEPTS, generator=generator).round()  # some are 0
    derivatives[:, 0, 3], derivatives[:, 1, 5] = math.nan, math.nan
    return {"concept_derivatives": derivatives, "labels": torch.randint(4, (IMAGES,), generator=generator)}


RECORD = record()


def slow_areas(record, which):
    areas = []
    for label in range(CLASSES):
        rows = record["concept_derivatives"][record["labels"] == label, which].tolist()
        scores = {}
        for concept in range(CONCEPTS):
            known = [row[concept] for row in rows if math.isfinite(row[concept])]
            if known:
                scores[concept] = sum(value > 0 for value in known) / len(known)
        own = [score for concept, score in scores.items() if HAS[label, concept]]
        others = [score for concept, score in scores.items() if not HAS[label, concept]]
        wins = [(one > other) + (one == other) / 2 for one in own for other in others]
        areas.append(sum(wins) / len(wins) if wins else math.nan)
    return areas


class TestTCAVArea(MetricTests):
    cases = {
        "classes": Case(
            partial(TCAVArea, HAS), RECORD, lambda record: mean(slow_areas(record, 0)), nowhere_finite(RECORD), CLASSES
        )
    }


def test_random_vectors_are_compared_class_by_class():
    summary = updated(TCAVArea(HAS), RECORD).summary()
    own, random = slow_areas(RECORD, 0), slow_areas(RECORD, 1)
    assert (summary["n"], summary["random"]) == (3, approx(mean(random)))
    assert summary["lift_over_random"] == approx(mean([one - other for one, other in zip(own, random, strict=True)]))
    assert summary["lift_over_random_low"] < summary["lift_over_random"] < summary["lift_over_random_high"]
