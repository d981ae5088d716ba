"""What predicted concepts say beyond the true ones, about the class and about each other."""

import math
from collections import Counter
from functools import partial
from itertools import permutations

import pytest
import torch

from protometry.metrics import ConceptTaskLeakage, InterconceptLeakage
from tests.metrics.tester import Case, MetricTests, approx, mean, nowhere_finite, partly_unknown, updated

# concepts 0 to 2 are units 2, 4 and 3, since unit 0 is not active; concept 3 is no unit
G1 = -0.5772156649015329 - math.log(2)
CONCEPTS, ACTIVE, UNITS = torch.tensor([2, -1, 0, 2, 1]), torch.arange(5) > 0, (2, 4, 3)
BOTH = torch.arange(2)


def slow_entropy(outcomes):
    """With Grassberger's recursion: G(1) = -γ - log 2, G(2) = 2 + G(1), then G(n + 2) = G(n) + 2 / (n + 1), n even."""
    each = [n * (G1 + sum(2 / odd for odd in range(1, n, 2))) for n in Counter(outcomes).values()]
    return math.log(len(outcomes)) - sum(each) / len(outcomes)


def slow_information(one, other):
    entropies = slow_entropy(one), slow_entropy(other)
    shared = sum(entropies) - slow_entropy(list(zip(one, other, strict=True)))
    return min(max(shared, 0), *entropies), *entropies


def tables(record, *concepts):
    """Bins and truth of each concept, and the classes, of the images on which all are finite."""
    units = [UNITS[concept] for concept in concepts]
    known = ~record["concept_labels"][:, concepts].isnan()
    kept = (record["concept_probabilities"][:, units].isfinite() & known).all(dim=1)
    predicted = record["concept_probabilities"][kept][:, units].T.tolist()
    bins = [[sum(p >= 1 / (1 + math.exp(-edge)) for edge in range(-6, 8, 2)) for p in row] for row in predicted]
    classes = record["labels"][kept].tolist() if "labels" in record else None
    return bins, record["concept_labels"][kept][:, concepts].T.tolist(), classes


def slow_task(record):
    values = []
    for bins, true, classes in (tables(record, concept) for concept in range(3)):
        if len(set(classes)) > 1:
            said, known = (slow_information(levels[0], classes)[0] for levels in (bins, true))
            values.append(max(0, said - known) / slow_entropy(classes))
    return mean(values)


def slow_pairs(record):
    values = {0: [], 1: [], 2: []}
    for one, other in permutations(values, 2):
        both = tables(record, one, other)[:2]
        if all(len(set(levels)) > 1 for kind in both for levels in kind):
            said, known = (i / math.sqrt(h * g) for i, h, g in (slow_information(*kind) for kind in both))
            values[one].append(max(0, said - known))
    return mean(mean(excesses) for excesses in values.values())


def record():
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.tensor([0, 0.1, 0.4, 0.5, 0.95, 1])[torch.randint(6, (21, 5), generator=generator)]
    probabilities[4], probabilities[7, 3] = math.nan, math.nan
    labels = torch.rand(21, 4, generator=generator) < 0.5
    classes = torch.randint(3, (21,), generator=generator)
    return {"concept_probabilities": probabilities, "concept_labels": labels, "labels": classes}


RECORD = record()
UNLABELLED = {name: RECORD[name] for name in ("concept_probabilities", "concept_labels")}
LOST = 4 + 3 * 21  # all concepts, and the values of those with a unit on every image


class TestLeakage(MetricTests):
    cases = {
        f"{name}{ending}": Case(partial(kind, CONCEPTS, 4, ACTIVE), change(rec), oracle, nowhere_finite(rec), LOST)
        for ending, change in (("", dict), ("_unknown", partly_unknown))
        for name, kind, rec, oracle in (
            ("task", partial(ConceptTaskLeakage, num_classes=3), RECORD, slow_task),
            ("pairs", InterconceptLeakage, UNLABELLED, slow_pairs),
        )
    }


def leakage(probabilities, concepts, labels):
    """Of each concept, to the classes and to the others."""
    concept, inputs = torch.arange(concepts.shape[1]), {"concept_probabilities": probabilities}
    inputs["concept_labels"] = concepts > 0
    task = ConceptTaskLeakage(concept, len(concept), num_classes=int(labels.max()) + 1)
    others = updated(InterconceptLeakage(concept, len(concept)), inputs)
    return updated(task, inputs | {"labels": labels}).values().tolist(), others.values().tolist()


def test_by_hand():
    """The first concept is right and is the class; the second is independent of it, but not what is predicted.

    Of four images, H is a - 2 with counts 2 2, a - 1 with 2 1 1 and a with 1 1 1 1, where a = log 4 - G(1).
    """
    classes = torch.tensor([0, 0, 1, 1])
    concepts = torch.stack([classes, torch.tensor([0, 1, 0, 1])], dim=1)
    task, others = leakage(torch.tensor([[0.2, 0.1], [0.3, 0.1], [0.8, 0.4], [0.7, 0.9]]), concepts, classes)
    assert task == approx([0, 1])
    a = math.log(4) - G1  # of the predictions, I is H of the first; the true ones have a - 2 + a - 2 - a < 0
    assert others == approx([math.sqrt((a - 2) / (a - 1))] * 2)


def test_leakage_grows_with_what_is_planted():
    generator = torch.Generator().manual_seed(0)
    classes, first, second, noise = torch.randint(2, (4, 400), generator=generator)
    order = torch.rand(400, generator=generator)
    concepts = torch.stack([first, second], dim=1)
    assert leakage(concepts.float(), concepts, classes) == ([0, 0], [0, 0])
    for source, of_classes in ((classes, True), (second, False)):
        values = []
        for strength in (0, 0.25, 0.5, 0.75, 1):  # of the images, those whose first concept betrays the source
            soft = (4 * first + 2 * torch.where(order < strength, source, noise) - 3.0).sigmoid()
            task, others = leakage(torch.stack([soft, second.float()], dim=1), concepts, classes)
            values.append((task if of_classes else others)[0])
        assert values == sorted(set(values))
        assert values[0] < 0.02
        assert values[-1] > (0.95 if of_classes else 0.65)  # 1; 1 / sqrt 2, as four bins have twice the H of two


def test_chance_is_corrected():  # counts of 2 to 3 in a cell; the logarithm would give .056 and .029
    generator = torch.Generator().manual_seed(0)
    classes = torch.arange(400) % 20
    concepts = torch.rand(400, 10, generator=generator) < 0.5
    probabilities = (16 * torch.rand(400, 10, generator=generator) - 8).sigmoid()
    task, others = leakage(probabilities, concepts, classes)
    assert 0 < mean(task) < 0.006
    assert 0 < mean(others) < 0.006


@pytest.mark.parametrize("constant", ["prediction", "truth", "classes"])
def test_what_never_varies(constant):
    """It is undefined where its entropy is the measure; of a concept that no image has, every prediction leaks."""
    concepts, classes = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]] * 3), torch.arange(12) % 4
    probabilities = concepts / 2 + 0.25
    {"prediction": probabilities, "truth": concepts}.get(constant, classes[:, None])[:, 0] = 0
    task, others = leakage(probabilities, concepts, classes)
    leaked = slow_entropy([0, 1] * 6) / slow_entropy([0, 1, 2, 3] * 3) if constant == "truth" else 0
    assert task == approx([math.nan] * 2 if constant == "classes" else [leaked, 0])
    assert others == approx([0, 0] if constant == "classes" else [math.nan] * 2)
