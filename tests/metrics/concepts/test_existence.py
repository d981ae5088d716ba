"""Whether images have the concepts that decide on them, compared with rankings that never look at the image."""

import math
from functools import partial

import pytest
import torch

from protometry.metrics import ConceptExistence
from protometry.metrics.functional import concept_existence, concept_existence_baselines, concept_importance
from tests.metrics.concepts.decisions import (
    CONCEPTS,
    FIRST,
    IMAGES,
    NAN,
    RECORD,
    WEIGHT,
    paired,
    part_of,
    ranking,
    usable,
)
from tests.metrics.tester import Case, MetricTests, mean, nowhere_finite, partly_unknown, same, updated

ALL = partial(ConceptExistence, WEIGHT, k=2, prevalence_order=FIRST)
CORRECT = partial(ConceptExistence, WEIGHT, k=2, subset="correct")
READ = part_of("scores", "logits", "labels", "concept_labels")


def approx(values):
    return pytest.approx(values, abs=1e-6)


ONE_CLASS, VALUES, PRESENT = (
    torch.tensor([[-1.0, 2.0, 1.0]]), torch.tensor([[-0.9, 0.2, -0.5]]), torch.tensor([[False, True, False]])
)  # fmt: skip


@pytest.mark.parametrize(
    ("order", "k", "expected"),
    [
        ("signed", 1, 0), ("signed", 2, 0.5), ("signed", 3, 1 / 3), ("abs", 2, 0), ("positive_evidence", 1, 1),
        ("positive_evidence", 3, 1),  # of one concept
    ],
)  # fmt: skip
def test_existence_by_hand(order, k, expected):
    importance = concept_importance(VALUES, ONE_CLASS, torch.tensor([0]), order=order)
    if order == "signed":
        assert importance[0].tolist() == pytest.approx([0.9, 0.4, -0.5], abs=0.01)
    assert concept_existence(importance, PRESENT, k).item() == approx(expected)


def test_existence_ties_baselines_and_what_is_undefined():
    equal = torch.ones(1, 3)
    assert concept_existence(equal, torch.tensor([[False, True, True]]), 1).item() == 0
    labels = torch.tensor([[True, True, False], [True, False, False]])
    prevalence = labels.double().mean(dim=0)
    for k, expected in ((1, 1.0), (2, 0.75)):
        actual = concept_existence_baselines(prevalence, k)
        assert {name: value.item() for name, value in actual.items()} == approx({"chance": 0.5, "prevalence": expected})
    other = concept_existence_baselines(prevalence, 1, order=torch.tensor([2, 1, 0]))
    assert other["prevalence"].item() == 0
    for broken in (NAN, math.inf):
        assert concept_existence(torch.tensor([[1.0, broken]]), torch.ones(1, 2, dtype=torch.bool), 1).isnan().all()
    assert concept_existence(torch.full((1, 2), -math.inf), torch.ones(1, 2, dtype=torch.bool), 1).isnan().all()


def existence(record, subset="all"):
    collected = []
    for image in usable(record):
        order, predicted = ranking(record, image)
        if subset == "all" or predicted == record["labels"][image]:
            value = mean(float(record["concept_labels"][image, c]) for c in order[:2])  # of those that are known
            collected += [] if math.isnan(value) else [(value, image)]
    return collected


class TestExistence(MetricTests):
    cases = {
        "all": Case(
            ALL, READ, lambda record: mean([value for value, _ in existence(record)]),
            nowhere_finite(part_of("scores")), IMAGES,
        ),
        "correct": Case(
            CORRECT, READ, lambda record: mean([value for value, _ in existence(record, "correct")]),
            {"labels": (RECORD["logits"].argmax(dim=1) + 1) % 3}, IMAGES,
        ),
        "unknown": Case(
            ALL, partly_unknown(READ), lambda record: mean([value for value, _ in existence(record)]),
            nowhere_finite(part_of("scores")), IMAGES,
        ),
    }  # fmt: skip


@pytest.mark.parametrize("record", [READ, partly_unknown(READ)])
def test_existence_beside_its_baselines(record):
    summary = updated(ALL(), record).summary()
    labels = record["concept_labels"]
    bases = {"chance": range(CONCEPTS), "prevalence": (3, 1)}  # not the two that are most frequent here
    for name, concepts in bases.items():
        base = {image: mean([float(labels[image, c]) for c in concepts]) for _, image in existence(record)}
        pairs = [(value, base[image]) for value, image in existence(record) if not math.isnan(base[image])]
        lift, expected = paired([[pair] for pair in pairs])
        assert same(summary[name], mean(known for _, known in pairs))
        assert same(summary[f"lift_over_{name}"], lift)
        bounds = [summary[f"lift_over_{name}_{end}"] for end in ("low", "high")]
        assert bounds == pytest.approx(expected)


def test_existence_beside_the_concepts_that_are_frequent_here():
    labels = RECORD["concept_labels"]
    alone = updated(CORRECT(), READ).summary()
    counts = sorted((labels[[image for _, image in existence(RECORD, "correct")]].double().mean(dim=0)).tolist())
    assert same(alone["prevalence"], sum(counts[-2:]) / 2)
    assert math.isnan(alone["lift_over_prevalence"])
