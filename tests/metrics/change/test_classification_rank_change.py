from typing import ClassVar

import torch

from protometry.metrics import ClassificationRankChange
from protometry.metrics.functional import classification_rank_change
from tests.metrics.change.changes import change_record, finite, image_first, slow_rank
from tests.metrics.tester import NAN, Case, ChangeTests, nowhere_finite

LOGITS = change_record("logits")


def slow_values(record):
    pairs = zip(record["logits"].tolist(), record["perturbed_logits"].tolist(), strict=True)
    return [
        slow_rank(other, one.index(max(one)), [True] * len(one)) if finite(one, other) else NAN for one, other in pairs
    ]


def slow_crc(record):
    return image_first([[value] for value in slow_values(record)])


class TestClassificationRankChange(ChangeTests):
    cases: ClassVar = {"crc": Case(ClassificationRankChange, LOGITS, slow_crc, nowhere_finite(LOGITS), 13)}


def test_by_hand():
    logits = torch.tensor([[2.0, 1, 0, -1], [2, 2, 0, 0], [0, 1, 0, 0]])
    # class 0 last; of two that tie class 0 is predicted, then overtaken once; a tie at the top is rank 0
    perturbed = torch.tensor([[0.0, 1, 2, 3], [2, 3, 2, 0], [5, 5, 0, 5]])
    assert classification_rank_change(logits, perturbed).tolist() == [3, 1, 0]
