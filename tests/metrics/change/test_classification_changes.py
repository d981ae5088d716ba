"""Changes of the logits."""

import math
from functools import partial

import pytest
import torch

from protometry.metrics import ClassificationActivationChange, ClassificationRankChange
from protometry.metrics.functional import classification_activation_change, classification_rank_change
from tests.metrics.change.changes import change_record, finite, image_first, ratio, slow_rank
from tests.metrics.tester import NAN, Case, ChangeTests, nowhere_finite

LOGITS = change_record("logits")
NOWHERE = nowhere_finite(LOGITS)


def slow_values(record):
    pairs = zip(record["logits"].tolist(), record["perturbed_logits"].tolist(), strict=True)
    return [
        slow_rank(other, one.index(max(one)), [True] * len(one)) if finite(one, other) else NAN for one, other in pairs
    ]


def slow_crc(record):
    return image_first([[value] for value in slow_values(record)])


class TestClassificationRankChange(ChangeTests):
    cases = {"crc": Case(ClassificationRankChange, LOGITS, slow_crc, NOWHERE, 13)}


def test_crc_by_hand():
    logits = torch.tensor([[2.0, 1, 0, -1], [2, 2, 0, 0], [0, 1, 0, 0]])
    # class 0 last; of two that tie class 0 is predicted, then overtaken once; a tie at the top is rank 0
    perturbed = torch.tensor([[0.0, 1, 2, 3], [2, 3, 2, 0], [5, 5, 0, 5]])
    assert classification_rank_change(logits, perturbed).tolist() == [3, 1, 0]


def softmax(row):
    powers = [math.exp(logit) for logit in row]
    return [power / sum(powers) for power in powers]


def sigmoid(row):
    return [1 / (1 + math.exp(-logit)) for logit in row]


def descending(row):
    return sorted(row, reverse=True)


class SlowChange:
    """The metric of a record, by its definition, where ``link`` makes what is compared."""

    def __init__(self, link):
        self.link = link

    def __call__(self, record):
        pairs = zip(record["logits"].tolist(), record["perturbed_logits"].tolist(), strict=True)
        values = [ratio(self.link(one), self.link(other)) if finite(one, other) else NAN for one, other in pairs]
        return image_first([[value] for value in values])


class TestClassificationActivationChange(ChangeTests):
    cases = {
        name: Case(partial(ClassificationActivationChange, **options), LOGITS, SlowChange(link), NOWHERE, 13)
        for name, options, link in (
            ("softmax", {}, softmax),
            ("sigmoid", {"link": "sigmoid"}, sigmoid),
            ("published", {"variant": "quanproto"}, descending),
        )
    }


def test_cac_by_hand():
    # shared .3 + .3 + .2 of .5 + .5 + .2
    logits, perturbed = torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.tensor([[0.3, 0.5, 0.2]]).log()
    assert classification_activation_change(logits, perturbed).item() == pytest.approx(1 - 0.8 / 1.2)
    assert classification_activation_change(logits, perturbed, variant="quanproto").item() == 0
    # (1/2, 1/2) against (3/4, 1/2): shared 1 of 1.25
    logits, perturbed = torch.tensor([[0.0, 0.0]]), torch.tensor([[math.log(3), 0.0]])
    assert classification_activation_change(logits, perturbed, "sigmoid").item() == pytest.approx(0.2)


def test_raw_logits_whose_maxima_cancel():
    logits, perturbed = torch.tensor([[1.0, -1.0]]), torch.tensor([[-1.0, 1.0]])
    assert classification_activation_change(logits, perturbed, variant="quanproto").isnan()
    p = 1 / (1 + math.exp(-2))
    assert classification_activation_change(logits, perturbed).item() == pytest.approx(1 - (1 - p) / p)


def test_total_variation():
    generator = torch.Generator().manual_seed(0)
    logits, perturbed = 10 * torch.randn(2, 40, 6, generator=generator)
    value = classification_activation_change(logits, perturbed)
    assert value.dtype == torch.float64
    distance = (logits.double().softmax(1) - perturbed.double().softmax(1)).abs().sum(1) / 2
    assert torch.allclose(value, 2 * distance / (1 + distance), rtol=0, atol=1e-12)
    assert ((value >= 0) & (value <= 1)).all()
    shifted = classification_activation_change(logits.double() + 3, perturbed.double() - 7)
    assert torch.allclose(shifted, value, rtol=0, atol=1e-12)
    for link in ("softmax", "sigmoid"):
        assert (classification_activation_change(logits, logits.clone(), link) == 0).all()
