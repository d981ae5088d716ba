import math
from functools import partial
from typing import ClassVar

import pytest
import torch

from protometry.metrics import PrototypeRankChange
from protometry.metrics.functional import prototype_rank_change
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


def case(fields):
    record = change_record(fields)
    return Case(partial(PrototypeRankChange, active=ACTIVE), record, slow_prc, nowhere_finite(record), 39)


class TestPrototypeRankChange(ChangeTests):
    cases: ClassVar = {"one_perturbed_image": case("scores"), "one_per_unit": case("scores_per_unit")}


@pytest.mark.parametrize(
    ("perturbed", "active", "expected"),
    [
        ([9.0, 2, 5, 3], None, 2),  # from rank 1 to 3
        ([5.0, 5, 5, 3], None, 1),  # from rank 1 to 0, which three units share
        ([9.0, 4, 5, 3], [True, True, False, True], 0),  # the unit that overtakes does not take part
        ([9.0, 4, 5, 3], None, 1),
    ],
)
def test_by_hand(perturbed, active, expected):
    active = None if active is None else torch.tensor(active)
    change = prototype_rank_change(SCORES, torch.tensor([perturbed]), torch.tensor([[1]]), active)
    assert change.tolist() == [[expected]]


@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
def test_not_finite_is_undefined(bad):
    broken = torch.tensor([[9.0, bad, 5.0, 3.0]])
    ids = torch.tensor([[0, 1]])
    assert prototype_rank_change(broken, SCORES, ids).isnan().all()
    assert prototype_rank_change(SCORES, broken, ids).isnan().all()
    active = torch.tensor([True, False, True, True])
    assert prototype_rank_change(SCORES, broken, ids, active).isnan().tolist() == [[False, True]]
