"""Parts and objects that do not matter, and how many of them are called important."""

import torch

from protometry.metrics.functional import distractibility, irrelevant_candidates
from tests.metrics.funnybirds.birds import equal
from tests.metrics.tester import NAN


def test_irrelevance_by_hand():
    drops, logit = torch.tensor([[0.4, 0.6, -3, 0.5, NAN]]), torch.tensor([10.0])
    assert irrelevant_candidates(drops, logit).tolist() == [[True, False, True, False, False]]
    assert irrelevant_candidates(drops[:, :4], -logit).tolist() == [[True, False, True, False]]
    assert irrelevant_candidates(torch.zeros(1, 1), torch.zeros(1)).item()  # what changes nothing is irrelevant


def test_distractibility_by_hand():
    irrelevant = torch.tensor([[True, True, False, True, True], [False] * 5])
    equal(distractibility(torch.tensor([[[True, True, True, False, False]]] * 2), irrelevant), [[0.5], [NAN]])
    everything = torch.ones(1, 1, 5, dtype=torch.bool)
    for important, expected in ((everything, 0), (~everything, 1)):
        equal(distractibility(important, everything[0]), [[expected]])
