import math
from typing import ClassVar

import pytest
import torch

from protometry.metrics import PrototypeSimilarityChange
from protometry.metrics.functional import prototype_similarity_change
from tests.metrics.change.changes import change_record, image_first
from tests.metrics.tester import NAN, Case, ChangeTests


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


def case(fields):
    record = change_record(fields)
    return Case(PrototypeSimilarityChange, record, slow_psc, {"scores": -record["scores"].abs()}, 39)


class TestPrototypeSimilarityChange(ChangeTests):
    cases: ClassVar = {"one_perturbed_image": case("scores"), "one_per_unit": case("scores_per_unit")}


def test_by_hand():
    # changes 0.25 and 0.5, a score of 0 left out and counted
    metric = PrototypeSimilarityChange()
    metric.update(torch.tensor([[0.0, 2, 9, 2]]), torch.tensor([[1.0, 1.5, 0, 3]]), torch.tensor([[1, 3, 0]]))
    summary = metric.summary()
    assert (summary["value"], summary["n"], summary["skipped"]) == (0.375, 1, 1)


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
def test_not_finite_is_undefined(bad):
    scores, broken = torch.ones(1, 2), torch.tensor([[bad, 1.0]])
    assert prototype_similarity_change(scores, broken).isnan().tolist() == [[True, False]]
    assert prototype_similarity_change(broken, scores).isnan().tolist() == [[True, False]]
