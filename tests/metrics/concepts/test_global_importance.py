"""Cosines of weights and scores with the table of annotators, by hand and by definition."""

import math
from functools import partial

import pytest
import torch

from protometry.metrics import ConceptGlobalImportance
from protometry.metrics.functional import concept_global_importance
from tests.metrics.concepts.decisions import CLASSES, CONCEPTS, IMAGES, NAN, TABLE, WEIGHT, part_of, ranking, usable
from tests.metrics.tester import Case, MetricTests, mean, same, updated

KIND_3 = partial(ConceptGlobalImportance, WEIGHT, TABLE, kind=3)


def approx(values):
    return pytest.approx(values, abs=1e-6, nan_ok=True)


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


@pytest.mark.parametrize(("weight", "annotation", "means", "kind", "plain", "centered"), [
    ((3, 4, 0), (1, 0, 0), None, 1, 0.6, 0.277350), ((9, 9, 9), (1, 1, 0), (0, 2, 2), 2, 0.5, -0.5),
    ((9, 9, 9), (1, 1, 0), (0, 2, NAN), 2, 0.707107, NAN),  # over two classes, where V is constant
    ((3, 4, 1), (1, 0, 0), (1, 0.5, 0), 3, 0.832050, 0.755929),
    ((2, 2, 2, 2), (1, 0, 0.5, 0.5), None, 1, 0.816497, NAN),  # mean / rms; a constant has no correlation
    ((-1, -0.5, 0), (1, 0.5, 0), None, 1, -1, -1), ((0, 0, 0), (1, 0, 0), None, 1, NAN, NAN),
    ((1, 1, 1), (1, 0, 0), (1, NAN, NAN), 2, NAN, NAN),  # one class is left
    ((0.1, 0.1, 0.1), (1, 0.3, 0), None, 1, 0.718902, NAN),  # 1.3 / sqrt(3 * 1.09); rounding leaves something
])  # fmt: skip
def test_global_importance_by_hand(weight, annotation, means, kind, plain, centered):
    given = None if means is None else column(*means)
    for expected, is_centered in ((plain, False), (centered, True)):
        actual = concept_global_importance(column(*weight), column(*annotation), given, kind, centered=is_centered)
        assert actual.tolist() == approx([expected]), is_centered


def slow_cosine(one, other):
    norms = math.sqrt(sum(x * x for x in one)), math.sqrt(sum(x * x for x in other))
    return sum(x * y for x, y in zip(one, other, strict=True)) / norms[0] / norms[1] if min(norms) > 0 else NAN


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_global_importance_by_definition_and_what_it_does_not_see(kind):
    generator = torch.Generator().manual_seed(kind)
    weight, means = (torch.randn(5, 4, generator=generator) for _ in range(2))
    annotation = torch.rand(5, 4, generator=generator)
    means[2] = NAN
    product = {1: weight, 2: means, 3: weight * means}[kind].tolist()
    classes = [c for c in range(5) if kind == 1 or c != 2]
    concepts = [slow_cosine([product[c][j] for c in classes], annotation[classes, j].tolist()) for j in range(4)]
    rows = [slow_cosine(product[c], annotation[c].tolist()) if c in classes else NAN for c in range(5)]
    by_concept = concept_global_importance(weight, annotation, means, kind)
    by_class = concept_global_importance(weight, annotation, means, kind, axis="class")
    assert (by_concept.tolist(), by_class.tolist()) == (approx(concepts), approx(rows))
    stretch = torch.tensor([1.0, 2.0, 0.5, 4.0])  # of a concept: the class version changes
    assert concept_global_importance(weight * stretch, annotation, means * stretch, kind).tolist() == approx(concepts)
    moved = concept_global_importance(weight * stretch, annotation, means * stretch, kind, axis="class")
    assert (moved - by_class).abs().nan_to_num().max() > 1e-3


def slow_importance(record):
    """CGIM3 of the concepts."""
    right = [i for i in usable(record) if ranking(record, i)[1] == record["labels"][i]]
    rows = {
        label: [record["scores"][i].double() for i in right if record["labels"][i] == label] for label in range(CLASSES)
    }
    means = {label: sum(result) / len(result) * WEIGHT[label].double() for label, result in rows.items() if result}
    table = TABLE.double()
    values = [
        slow_cosine(
            [means[label][concept].item() for label in means], [table[label, concept].item() for label in means]
        )
        for concept in range(CONCEPTS)
    ]
    return mean(values) if len(means) > 1 else NAN


class TestGlobalImportance(MetricTests):
    cases = {
        "importance": Case(
            KIND_3,
            part_of("scores", "logits", "labels"),
            slow_importance,
            {"labels": torch.full((IMAGES,), 2)},
            CONCEPTS + 1,
        )
    }


def test_global_importance_of_classes_and_correlations():
    record = part_of("scores", "logits", "labels")
    metric = updated(ConceptGlobalImportance(WEIGHT, TABLE, kind=2, axis="class"), record)
    assert metric.values().isnan().tolist() == [False, False, True]  # no image of the last class is right
    assert metric.averaged_over == "class"
    plain = updated(KIND_3(), record).summary()
    centered = updated(ConceptGlobalImportance(WEIGHT, TABLE, kind=3, centered=True), record).compute()
    assert same(plain["centered"], centered)
    assert plain["skipped"] == 1  # the image without finite scores
