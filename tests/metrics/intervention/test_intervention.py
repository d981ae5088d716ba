"""Curves of correction: which concepts are corrected after each step, the area and the end of the curve."""

import itertools
import math
from functools import partial

import pytest
import torch

from protometry.metrics import InterventionArea, InterventionFinal
from protometry.metrics.functional import group_uncertainty, intervention_masks
from tests.metrics.tester import Case, MetricTests, mean, rows, updated


def slow_curves(record):
    """Hits by image, trial and step, without the images that have a logit that is not finite."""
    curves = []
    for image, label in zip(record["intervened_logits"].tolist(), record["labels"].tolist(), strict=True):
        if all(math.isfinite(value) for trial in image for logits in trial for value in logits):
            curves.append([[logits.index(max(logits)) == label for logits in trial] for trial in image])
    return curves


def slow_area(record):
    areas = [
        sum((before + after) / 2 for before, after in itertools.pairwise(trial)) / (len(trial) - 1)
        for image in slow_curves(record)
        for trial in image
    ]
    return mean(areas)


def slow_final(record):
    return mean(image[0][-1] for image in slow_curves(record))


def record():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randint(4, (13, 3, 5, 3), generator=generator).float()  # ties go to the lower class
    logits[2] = math.nan
    return {"intervened_logits": logits, "labels": torch.randint(3, (13,), generator=generator)}


RECORD = record()
NOTHING = {"intervened_logits": RECORD["intervened_logits"] * math.nan}


class TestIntervention(MetricTests):
    cases = {
        "area": Case(partial(InterventionArea, steps=4, trials=3), RECORD, slow_area, NOTHING, 13),
        "final": Case(InterventionFinal, RECORD, slow_final, NOTHING, 13),
    }


def test_the_curve_is_in_the_summary():
    kept = rows(RECORD, [row for row in range(13) if row != 2])
    summary = updated(InterventionArea(steps=4, trials=3), RECORD, 5).summary()
    hits = torch.tensor(slow_curves(kept)).double()
    trials = hits.mean(0)
    assert summary["curve"] == pytest.approx(trials.mean(0).tolist())
    assert summary["curve_sd"] == pytest.approx(trials.std(0).tolist())
    areas = torch.trapezoid(trials, dim=1) / 4
    assert summary["standard_deviation"] == pytest.approx(areas.std().item())
    assert summary["lift"] == pytest.approx(summary["value"] - trials.mean(0)[0].item())
    final = updated(InterventionFinal(), RECORD, 5).summary()
    assert final["baseline"] == pytest.approx(hits[:, 0, 0].mean().item())
    assert final["lift"] == pytest.approx(final["value"] - final["baseline"])
    assert math.isnan(updated(InterventionArea(steps=4), rows(one_trial(), slice(0, 3))).summary()["curve_sd"][0])


def one_trial():
    return RECORD | {"intervened_logits": RECORD["intervened_logits"][:, :1]}


@pytest.mark.parametrize("seed", [0, 1])
def test_masks_and_uncertainty_follow_the_definition(seed):
    generator = torch.Generator().manual_seed(seed)
    groups = torch.tensor([1, -1, 0, 2, 1, 2])
    probabilities = torch.randint(5, (4, 6), generator=generator) / 4
    uncertainty = group_uncertainty(probabilities, groups, 3)
    masks = intervention_masks(uncertainty[:, None], groups)
    for image in range(4):
        doubt = []
        for group in range(3):
            own = [
                abs(p - 0.5) for p, g in zip(probabilities[image].tolist(), groups.tolist(), strict=True) if g == group
            ]
            doubt.append(-sum(own) / len(own))
        assert uncertainty[image].tolist() == pytest.approx(doubt)
        order = sorted(range(3), key=lambda group: -doubt[group])  # stable: ties to the lower group
        for step in range(3):
            corrected = [group in order[: step + 1] for group in groups.tolist()]
            assert masks[image, 0, step].tolist() == corrected
