"""Accuracy, area under the curve and calibration of concepts, with their majority baselines."""

import math
from functools import partial

import pytest
import torch

from protometry.metrics import ConceptAccuracy, ConceptAUC, ConceptCalibrationError
from protometry.metrics.functional import concept_auc, mean_interval, name_units
from tests.metrics.tester import Case, MetricTests, partly_unknown, updated

# concept 0 is unit 2, concept 1 no unit, concept 2 unit 3, since unit 0 is not active
CONCEPTS, ACTIVE, UNIT_OF = torch.tensor([2, -1, 0, 2]), torch.tensor([False, True, True, True]), {0: 2, 2: 3}


def mean_of_concepts(record, score, value):
    """The mean over concepts of a function of the (prediction, label) pairs that are finite."""
    values = []
    for concept, unit in UNIT_OF.items():
        pairs = zip(record[score][:, unit].tolist(), record["concept_labels"][:, concept].tolist(), strict=True)
        result = value([pair for pair in pairs if all(map(math.isfinite, pair))])
        values += [] if result is None else [result]
    return sum(values) / len(values) if values else math.nan


def slow_accuracy(pairs):
    return sum((predicted >= 0.5) == label for predicted, label in pairs) / len(pairs) if pairs else None


def slow_area(pairs):
    wins = [
        (high > low) + (high == low) / 2
        for high, present in pairs for low, absent in pairs if present and not absent
    ]  # fmt: skip
    return sum(wins) / len(wins) if wins else None


def slow_error(pairs, bins=15):
    error = 0.0
    for index in range(bins):
        inside = [(p, y) for p, y in pairs if min(int(p * bins), bins - 1) == index]
        error += abs(sum(y for _, y in inside) - sum(p for p, _ in inside))
    return error / len(pairs) if pairs else None


def record():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(11, (13, 4), generator=generator) / 10  # ties, 0, 1/2 and 1 among them
    scores[4] = math.nan
    labels = torch.rand(13, 3, generator=generator) < 0.4
    return {"concept_probabilities": scores, "concept_labels": labels}


RECORD = record()
AREAS = {"scores": RECORD["concept_probabilities"], "concept_labels": RECORD["concept_labels"]}


def case(kind, record, name, value):
    lost = 1 + 2 + 2 * 13  # concept 1, both others, and the values of both on every image
    build = partial(kind, CONCEPTS, 3, ACTIVE)
    return Case(build, record, lambda r: mean_of_concepts(r, name, value), {name: record[name] * math.nan}, lost)


class TestConceptPrediction(MetricTests):
    cases = {
        f"{name}{ending}": case(kind, change(fields), field, value)
        for ending, change in (("", dict), ("_unknown", partly_unknown))
        for name, kind, fields, field, value in (
            ("accuracy", ConceptAccuracy, RECORD, "concept_probabilities", slow_accuracy),
            ("auc", ConceptAUC, AREAS, "scores", slow_area),
            ("ece", ConceptCalibrationError, RECORD, "concept_probabilities", slow_error),
        )
    }


def test_by_hand():
    """Two concepts on four images: the first is on three of them, the second on one."""
    probabilities = torch.tensor([[0.9, 0.1], [0.8, 0.6], [0.4, 0.1], [0.7, 0.2]])
    labels = torch.tensor([[True, False], [True, True], [True, False], [False, False]])
    both = torch.arange(2)
    inputs = {"concept_probabilities": probabilities, "concept_labels": labels}
    accuracy = updated(ConceptAccuracy(both, 2), inputs)
    assert accuracy.values().tolist() == [0.5, 1.0]
    lift = accuracy.summary()
    assert (lift["majority"], lift["lift_over_majority"]) == (0.75, 0)  # 3/4 are present, 3/4 absent
    bounds = mean_interval(torch.tensor(0.0), torch.tensor(0.125), torch.tensor(2), value_range=(-1.0, 1.0))
    assert lift["lift_over_majority_low"] == pytest.approx(bounds[0].item())  # of 1/2 - 3/4 and 1 - 3/4
    assert lift["lift_over_majority_high"] == 1  # of 0 and 1/2, since four images do not tell 3/4 from 1/2
    area = updated(ConceptAUC(both, 2), {"scores": probabilities, "concept_labels": labels})
    torch.testing.assert_close(area.values(), torch.tensor([2 / 3, 1.0], dtype=torch.float64))  # 0.4 loses to 0.7
    assert (area.summary()["majority"], area.summary()["lift_over_majority"]) == (0.5, pytest.approx(1 / 3))
    error = updated(ConceptCalibrationError(both, 2, bins=2), inputs)  # 0.4 is alone in its bin: .6; 2 - 2.4: .4
    assert [round(value, 6) for value in error.values().tolist()] == [0.25, 0.2]  # 1 - .6 and .4
    assert error.summary()["majority"] == 0.25
    assert "lift_over_majority" not in error.summary()


def test_guesses_about_balanced_concepts_are_as_good_as_the_majority_may_be():
    """On these images one of both answers is right more often, on 53 % of 200."""
    generator = torch.Generator().manual_seed(0)
    guesses, labels = torch.rand(2, 200, 112, generator=generator)
    record = {"concept_probabilities": guesses, "concept_labels": labels < 0.5}
    summary = updated(ConceptAccuracy(torch.arange(112), 112), record).summary()
    assert summary["lift_over_majority"] < -0.02
    assert summary["lift_over_majority_low"] < 0 < summary["lift_over_majority_high"]


@pytest.mark.parametrize(
    ("kind", "field", "expected"),
    [(ConceptAccuracy, "concept_probabilities", 0.5), (ConceptAUC, "scores", 1.0),
     (ConceptCalibrationError, "concept_probabilities", 0.35)],  # (.1 + .6) / 2
)  # fmt: skip
def test_unknown_concepts_by_hand(kind, field, expected):
    """The first concept is present at .9, absent at .6 and unknown at .95; of the second nobody knows anything."""
    truth = torch.tensor([[1.0, math.nan], [0.0, math.nan], [math.nan, math.nan]])
    predicted = torch.tensor([[0.9, 0.5], [0.6, 0.5], [0.95, 0.5]])
    summary = updated(metric := kind(torch.arange(2), 2), {field: predicted, "concept_labels": truth}).summary()
    assert metric.values()[0] == pytest.approx(expected)
    assert (summary["n"], summary["skipped"]) == (1, 4 + 1)
    nobody = updated(kind(torch.arange(2), 2), {field: predicted, "concept_labels": truth * math.nan})
    assert math.isnan(nobody.summary()["value"])
    assert "no image says whether it has a concept" in nobody.nothing_measured(8)
    with pytest.raises(ValueError, match="`concept_labels` to hold 0, 1 and NaN for what is unknown"):
        kind(torch.arange(2), 2).update(predicted, truth + 0.5)


def test_majority_is_that_of_the_concepts_that_count():
    record = {"concept_probabilities": torch.ones(4, 4), "concept_labels": torch.ones(4, 3, dtype=torch.bool)}
    record["concept_labels"][:3, 0] = False  # a quarter; concept 1 has no unit, concept 2 is always there
    assert updated(ConceptAccuracy(CONCEPTS, 3, ACTIVE), record).summary()["majority"] == (0.75 + 1) / 2


def test_areas_of_all_units_and_concepts():
    generator = torch.Generator().manual_seed(4)
    scores = torch.randint(0, 5, (17, 3), generator=generator).float()
    labels = torch.rand(17, 4, generator=generator) > 0.6
    labels[:, 2], labels[:, 3] = True, False  # nothing to tell apart
    for unit, row in enumerate(concept_auc(scores, labels).tolist()):
        for concept, area in enumerate(row):
            expected = slow_area(list(zip(scores[:, unit].tolist(), labels[:, concept].tolist(), strict=True)))
            assert area == pytest.approx(math.nan if expected is None else expected, nan_ok=True)


def test_names():
    auc = torch.tensor([[0.7, 0.8, 0.8], [0.59, math.nan, 0.1], [math.nan, math.nan, math.nan], [0.6, 0.2, math.nan]])
    assert name_units(auc).tolist() == [1, -1, -1, 0]
