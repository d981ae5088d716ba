import math
from functools import partial

import pytest
import torch

from metrics import ClassificationRankChange, PrototypeRankChange
from tests.metrics.changes import ACTIVE, change_record, finite, image_first
from tests.metrics.tester import (
    check_attributes,
    check_change,
    check_collection,
    check_protocol,
    check_splits,
    check_two_processes,
    check_undefined,
    updated,
)

NAN = math.nan


def slow_rank(row, unit, active):
    return sum(active[other] and row[other] > row[unit] for other in range(len(row)))


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
CASES = {
    "prc": (build_prc, change_record("scores"), slow_prc),
    "prc_per_unit": (build_prc, change_record("scores_per_unit"), slow_prc),
    "crc": (ClassificationRankChange, change_record("logits"), slow_crc),
}


@pytest.mark.parametrize(("build", "record", "oracle"), CASES.values(), ids=CASES)
class TestEveryClass:
    def test_attributes(self, build, record, oracle):
        check_attributes(build())
        assert build().higher_is_better is False
        assert build().unit == "ranks"

    def test_splits(self, build, record, oracle):
        check_splits(build, record, oracle)

    def test_protocol(self, build, record, oracle):
        check_protocol(build, record)
        check_collection(build, record)

    def test_two_processes(self, build, record, oracle, ddp_pool):
        check_two_processes(ddp_pool, build, record)

    def test_zero_change(self, build, record, oracle):
        check_change(build, record)

    def test_undefined(self, build, record, oracle):
        broken = {name: value * NAN if value.is_floating_point() else value for name, value in record.items()}
        check_undefined(build, broken, skipped=13 if "logits" in record else 39)


def test_by_hand():
    # unit 0 stays, unit 1 falls from rank 1 to 3; without unit 2 it falls to 2
    record = {
        "scores": torch.tensor([[9.0, 7, 5, 3]]),
        "perturbed_scores": torch.tensor([[9.0, 2, 5, 3]]),
        "unit_ids": torch.tensor([[0, 1]]),
    }
    assert updated(PrototypeRankChange(), record).compute() == 1
    assert updated(PrototypeRankChange(torch.tensor([True, True, False, True])), record).compute() == 0.5
    assert [PrototypeRankChange.name, ClassificationRankChange.name] == ["prc", "crc"]


def test_errors():
    with pytest.raises(ValueError, match="`active` to be of shape"):
        updated(PrototypeRankChange(torch.ones(2)), change_record("scores"))
