"""What is predicted of the important parts alone, and without them."""

import torch

from protometry.metrics.functional import deletion_check, preservation_check, subset_codes
from tests.metrics.funnybirds.birds import equal
from tests.metrics.tester import NAN


def test_subset_codes():
    every = torch.tensor([[bool(code >> j & 1) for j in range(5)] for code in range(32)])
    assert subset_codes(every).tolist() == list(range(32))
    assert subset_codes(torch.tensor([True, False, True])).item() == 5


def test_predictions_by_hand():
    parts, kept = torch.tensor([[[True, False], [False, False]]]), torch.tensor([[9, 4, 9, 4]])
    for check in (preservation_check, deletion_check):
        equal(check(parts, kept, torch.tensor([4])), [[1, 0]])
    kept[0, 0] = -1  # never shown: P = {} keeps nothing
    equal(preservation_check(parts, kept, torch.tensor([4])), [[1, NAN]])


def test_all_parts_keep_the_prediction_and_no_parts_change_it():
    kept, predictions = torch.tensor([[5, 9, 9, 4]]), torch.tensor([4])
    for important in (True, False):
        parts = torch.full((1, 1, 2), important)
        for check in (preservation_check, deletion_check):
            assert check(parts, kept, predictions).item() == float(important)
