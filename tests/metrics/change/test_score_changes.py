"""Changes of the scores of prototypes."""

import math
from functools import partial

import pytest
import torch

from protometry.metrics import PrototypeRankChange, PrototypeSimilarityChange
from protometry.metrics.functional import prototype_rank_change, prototype_similarity_change
from tests.metrics.change.changes import change_record, image_first, slow_rank
from tests.metrics.tester import NAN, Case, ChangeTests, nowhere_finite

ACTIVE = torch.tensor([True, False, True, True, True, True])
SCORES = torch.tensor([[9.0, 7.0, 5.0, 3.0]])


def slow_values(record):
    """The change of every unit of every image."""
    values, active = [], ACTIVE.tolist()
    for image, ids in enumerate(record["unit_ids"].tolist()):
        before, perturbed = record["scores"][image].tolist(), record["perturbed_scores"][image]
        row = []
        for slot, unit in enumerate(ids):
            after = (perturbed[slot] if perturbed.ndim == 2 else perturbed).tolist()
            row.append(abs(slow_rank(after, unit, active) - slow_rank(before, unit, active)) if unit >= 0 else NAN)
        values.append(row)
    return values


def slow_prc(record):
    return image_first(slow_values(record), record["valid"].tolist())


def case_prc(fields):
    record = change_record(fields)
    return Case(partial(PrototypeRankChange, active=ACTIVE), record, slow_prc, nowhere_finite(record), 39)


class TestPrototypeRankChange(ChangeTests):
    cases = {"one_perturbed_image": case_prc("scores"), "one_per_unit": case_prc("scores_per_unit")}


@pytest.mark.parametrize(("perturbed", "active", "expected"), [
    ([9.0, 2, 5, 3], None, 2),  # from rank 1 to 3
    ([5.0, 5, 5, 3], None, 1),  # from rank 1 to 0, which three units share
    ([9.0, 4, 5, 3], [True, True, False, True], 0),  # the unit that overtakes does not take part
    ([9.0, 4, 5, 3], None, 1),
])  # fmt: skip
def test_prc_by_hand(perturbed, active, expected):
    active = None if active is None else torch.tensor(active)
    change = prototype_rank_change(SCORES, torch.tensor([perturbed]), torch.tensor([[1]]), active)
    assert change.tolist() == [[expected]]


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
def test_prc_not_finite_is_undefined(bad):
    broken = torch.tensor([[9.0, bad, 5.0, 3.0]])
    ids = torch.tensor([[0, 1]])
    assert prototype_rank_change(broken, SCORES, ids).isnan().all()
    assert prototype_rank_change(SCORES, broken, ids).isnan().all()
    active = torch.tensor([True, False, True, True])
    assert prototype_rank_change(SCORES, broken, ids, active).isnan().tolist() == [[False, True]]


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


def case_psc(fields):
    record = change_record(fields)
    return Case(PrototypeSimilarityChange, record, slow_psc, {"scores": -record["scores"].abs()}, 39)


class TestPrototypeSimilarityChange(ChangeTests):
    cases = {"one_perturbed_image": case_psc("scores"), "one_per_unit": case_psc("scores_per_unit")}


def test_psc_by_hand():
    # changes 0.25 and 0.5, a score of 0 left out and counted
    metric = PrototypeSimilarityChange()
    metric.update(torch.tensor([[0.0, 2, 9, 2]]), torch.tensor([[1.0, 1.5, 0, 3]]), torch.tensor([[1, 3, 0]]))
    summary = metric.summary()
    assert (summary["value"], summary["n"], summary["skipped"]) == (0.375, 1, 1)


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
def test_psc_not_finite_is_undefined(bad):
    scores, broken = torch.ones(1, 2), torch.tensor([[bad, 1.0]])
    assert prototype_similarity_change(scores, broken).isnan().tolist() == [[True, False]]
    assert prototype_similarity_change(broken, scores).isnan().tolist() == [[True, False]]
