import math
from functools import partial
from typing import ClassVar

import pytest
import torch

from metrics import ClassificationRankChange, PrototypeRankChange
from tests.metrics.change.changes import ACTIVE, change_record, finite, image_first, slow_rank
from tests.metrics.tester import Case, ChangeTests, nowhere_finite, updated

NAN = math.nan


def slow_prc(record):
    active, values = ACTIVE.tolist(), []
    for image, ids in enumerate(record["unit_ids"].tolist()):
        row = []
        for slot, unit in enumerate(ids):
            perturbed = record["perturbed_scores"][image]
            after = (perturbed[slot] if perturbed.ndim == 2 else perturbed).tolist()
            before = record["scores"][image].tolist()
            row.append(abs(slow_rank(after, unit, active) - slow_rank(before, unit, active)) if unit >= 0 else NAN)
        values.append(row)
    return image_first(values, record["valid"].tolist())


def slow_crc(record):
    values = []
    for one, other in zip(record["logits"].tolist(), record["perturbed_logits"].tolist(), strict=True):
        rank = slow_rank(other, one.index(max(one)), [True] * len(one)) if finite(one, other) else NAN
        values.append([rank])
    return image_first(values)


build_prc = partial(PrototypeRankChange, active=ACTIVE)
SCORES, SCORES_PER_UNIT, LOGITS = (change_record(fields) for fields in ("scores", "scores_per_unit", "logits"))


class TestEveryClass(ChangeTests):
    cases: ClassVar = {
        "prc": Case(build_prc, SCORES, slow_prc, nowhere_finite(SCORES), 39),
        "prc_per_unit": Case(build_prc, SCORES_PER_UNIT, slow_prc, nowhere_finite(SCORES_PER_UNIT), 39),
        "crc": Case(ClassificationRankChange, LOGITS, slow_crc, nowhere_finite(LOGITS), 13),
    }


def test_by_hand():
    # unit 0 stays, unit 1 falls from rank 1 to 3; without unit 2 it falls to 2
    record = {
        "scores": torch.tensor([[9.0, 7, 5, 3]]),
        "perturbed_scores": torch.tensor([[9.0, 2, 5, 3]]),
        "unit_ids": torch.tensor([[0, 1]]),
    }
    assert updated(PrototypeRankChange(), record).compute() == 1
    assert updated(PrototypeRankChange(torch.tensor([True, True, False, True])), record).compute() == 0.5


def test_errors():
    with pytest.raises(ValueError, match="`active` to be of shape"):
        updated(PrototypeRankChange(torch.ones(2)), change_record("scores"))
