"""Accuracy and agreement with foreign patches in the place of prototypes."""

import math

import torch

from protometry.metrics import ExchangedAccuracy, ExchangedAgreement
from tests.metrics.tester import NAN, Case, MetricTests, mean, nowhere_finite, updated


def logits(seed):
    values = torch.rand(11, 3, generator=torch.Generator().manual_seed(seed))
    values[seed, 0] = NAN
    return values


def chosen(row):
    return row.index(max(row)) if all(map(math.isfinite, row)) else NAN


def same(one, other):
    return NAN if one != one or other != other else float(one == other)


def slow_accuracy(record):
    refitted = map(chosen, record["refitted_logits"].tolist())
    pairs = zip(record["exchanged_logits"].tolist(), refitted, record["labels"].tolist(), strict=True)
    return mean(NAN if own != own else same(chosen(row), label) for row, own, label in pairs)


def slow_agreement(record):
    both = (map(chosen, record[f"{which}_logits"].tolist()) for which in ("exchanged", "refitted"))
    return mean(same(one, other) for one, other in zip(*both, strict=True))


RECORD = {"exchanged_logits": logits(1), "refitted_logits": logits(2)}
LABELLED = RECORD | {"labels": torch.arange(11) % 3}


class TestExchange(MetricTests):
    cases = {
        "ExchangedAccuracy": Case(ExchangedAccuracy, LABELLED, slow_accuracy, nowhere_finite(RECORD), 11),
        "ExchangedAgreement": Case(ExchangedAgreement, RECORD, slow_agreement, nowhere_finite(RECORD), 11),
    }


def test_by_hand():
    """Foreign patches are right on one of four images, where the model's own are right on three."""
    own, foreign = torch.eye(4)[[0, 1, 2, 0]], torch.eye(4)[[0, 0, 0, 0]]
    both = {"exchanged_logits": foreign, "refitted_logits": own}
    summary = updated(ExchangedAccuracy(), both | {"labels": torch.arange(4)}).summary()
    assert (summary["value"], summary["own"], summary["lift_over_own"]) == (0.25, 0.75, -0.5)
    assert updated(ExchangedAgreement(), both).summary()["value"] == 0.5
