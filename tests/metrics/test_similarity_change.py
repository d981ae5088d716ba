import math

import pytest
import torch

from metrics import PrototypeSimilarityChange
from tests.metrics.changes import change_record, image_first
from tests.metrics.tester import (
    check_attributes,
    check_change,
    check_collection,
    check_protocol,
    check_splits,
    check_two_processes,
    check_undefined,
)

NAN = math.nan
RECORDS = {"one_perturbed_image": change_record("scores"), "one_per_unit": change_record("scores_per_unit")}


def slow_psc(record):
    values = []
    for image, ids in enumerate(record["unit_ids"].tolist()):
        row = []
        for slot, unit in enumerate(ids):
            perturbed = record["perturbed_scores"][image]
            perturbed = perturbed[slot] if perturbed.ndim == 2 else perturbed
            s, p = float(record["scores"][image, unit]), float(perturbed[unit])
            row.append(abs(s - p) / s if unit >= 0 and s > 0 else NAN)
        values.append(row)
    return image_first(values, record["valid"].tolist())


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
class TestPrototypeSimilarityChange:
    def test_protocol(self, record):
        check_attributes(PrototypeSimilarityChange())
        check_protocol(PrototypeSimilarityChange, record)
        check_collection(PrototypeSimilarityChange, record)

    def test_splits(self, record):
        check_splits(PrototypeSimilarityChange, record, slow_psc)

    def test_zero_change(self, record):
        check_change(PrototypeSimilarityChange, record)

    def test_two_processes(self, record, ddp_pool):
        check_two_processes(ddp_pool, PrototypeSimilarityChange, record)

    def test_undefined(self, record):
        check_undefined(PrototypeSimilarityChange, record | {"scores": -record["scores"].abs()}, skipped=39)


def test_by_hand():
    # changes 0.25 and 0.5, a score of 0 left out and counted
    metric = PrototypeSimilarityChange()
    metric.update(torch.tensor([[0.0, 2, 9, 2]]), torch.tensor([[1.0, 1.5, 0, 3]]), torch.tensor([[1, 3, 0]]))
    summary = metric.summary()
    assert (summary["value"], summary["n"], summary["skipped"]) == (0.375, 1, 1)
    assert (metric.name, metric.unit, metric.higher_is_better) == ("psc", "fraction", False)


def test_errors():
    ids = torch.tensor([[0, 1]])
    with pytest.raises(ValueError, match="`unit_ids` to be of shape"):
        PrototypeSimilarityChange().update(torch.zeros(1, 3), torch.zeros(1, 3), ids.int())
    with pytest.raises(ValueError, match="to be of shape"):
        PrototypeSimilarityChange().update(torch.zeros(1, 3), torch.zeros(1, 3, 3), ids)
