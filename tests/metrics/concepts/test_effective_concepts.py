"""The accuracy of heads with few weights."""

import math
from functools import partial

import torch

from protometry.metrics import AccuracyAtNEC, MeanAccuracyAtNEC
from tests.metrics.tester import Case, MetricTests, approx, mean, nowhere_finite, updated


def record():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randint(4, (11, 6, 3), generator=generator).double()  # ties among them
    logits[2, 4, 1] = math.nan
    return {"sparse_logits": logits, "labels": torch.randint(3, (11,), generator=generator)}


RECORD = record()


def slow(record, heads):
    values = []
    for logits, label in zip(record["sparse_logits"].tolist(), record["labels"].tolist(), strict=True):
        rows = [logits[head] for head in heads]
        right = [row.index(max(row)) == label if all(map(math.isfinite, row)) else math.nan for row in rows]
        values.append(math.nan if any(map(math.isnan, right)) else sum(right) / len(right))
    return mean(values)


class TestEffectiveConcepts(MetricTests):
    cases = {
        "five": Case(partial(AccuracyAtNEC, 5), RECORD, partial(slow, heads=[0]), nowhere_finite(RECORD), 11),
        "25": Case(partial(AccuracyAtNEC, 25), RECORD, partial(slow, heads=[4]), nowhere_finite(RECORD), 11),
        "mean": Case(MeanAccuracyAtNEC, RECORD, partial(slow, heads=range(6)), nowhere_finite(RECORD), 11),
    }


def test_the_curve_is_that_of_the_images_that_count():
    curve = updated(MeanAccuracyAtNEC(), RECORD).summary()["curve"]
    counted = {name: torch.cat([value[:2], value[3:]]) for name, value in RECORD.items()}
    assert curve == approx([slow(counted, [head]) for head in range(6)])
