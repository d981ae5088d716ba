"""Parts and objects that do not matter, that cannot be seen, or that explanations do not add up to."""

import torch

from protometry.metrics import BackgroundIndependence, HiddenParts, TotalsNotPositive
from protometry.metrics.functional import background_independence, distractibility, irrelevant_candidates
from tests.metrics.funnybirds.birds import booleans, equal, normal
from tests.metrics.tester import NAN, Case, MetricTests, mean, nowhere_finite


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


def test_background_by_hand():
    drops = torch.tensor([[0.5, 0.1, -2], [9, 0, NAN], [NAN, 0, 0], [0, 0, 0]])
    valid = torch.tensor([[True] * 3, [True, True, False], [True, False, False], [False] * 3])
    independent, objects = background_independence(drops, torch.full((4,), 10.0), valid)
    equal(independent, [2, 1, NAN, 0])
    equal(objects, [3, 2, 1, 0])
    assert background_independence(drops, torch.full((4,), NAN), valid)[0].isnan().all()


def background_record():
    valid = booleans(1, 13, 4)
    valid[2] = False
    return {
        "background_drops": normal(2, 13, 4),
        "label_logits": normal(3, 13) * 10,
        "background_valid": valid,
    }


def slow_background(record):
    matters = objects = 0
    for drops, logit, valid in zip(*(value.tolist() for value in record.values()), strict=True):
        for drop in (drop for drop, there in zip(drops, valid, strict=True) if there):
            matters += drop > 0 and drop >= 0.05 * abs(logit)
            objects += 1
    return 1 - matters / objects if objects else NAN


class TestBackgroundIndependence(MetricTests):
    record = background_record()
    cases = {"bi": Case(BackgroundIndependence, record, slow_background, nowhere_finite(record), 13)}


def test_hidden_parts_are_those_that_were_drawn():
    metric = HiddenParts()
    metric.update(
        torch.tensor([[True, True, False], [True, True, True]]), torch.tensor([[True, False, False]]).repeat(2, 1)
    )
    assert metric.summary()["value"] == 1.5  # one and two


def slow_totals(record):
    return mean([float(total <= 0) for total in record["label_totals"].tolist()])


class TestTotalsNotPositive(MetricTests):
    record = {"label_totals": normal(8, 13).round()}
    cases = {"totals": Case(TotalsNotPositive, record, slow_totals, nowhere_finite(record), 13)}
