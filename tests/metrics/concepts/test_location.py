import math
from typing import ClassVar

import pytest
import torch
from scipy.stats import t

from metrics import (
    ConceptExistence,
    ConceptGlobalImportance,
    ConceptLocation,
    ConceptMaskIntersectionOverUnion,
)
from tests.metrics.tester import Case, MetricTests, nowhere_finite, same, updated

NAN, SIZE, IMAGES, CLASSES, CONCEPTS = math.nan, (6, 4), 13, 3, 5
GENERATOR = torch.Generator().manual_seed(8)
WEIGHT = torch.randn(CLASSES, CONCEPTS, generator=GENERATOR)
TABLE = torch.rand(CLASSES, CONCEPTS, generator=GENERATOR)
PARTS = torch.tensor([[0, 1], [2, -1], [-1, -1], [2, -1], [3, -1]])  # two sides; the third concept has no part
MASKS = torch.tensor([0, 1, -1, 1, -1])
FIRST = torch.tensor([3, 1, 0, 2, 4])  # by how frequent concepts are in training


def mean(values):
    defined = [value for value in values if not math.isnan(value)]
    return sum(defined) / len(defined) if defined else NAN


def concept_record():
    record = {
        "scores": torch.randint(-4, 5, (IMAGES, CONCEPTS), generator=GENERATOR) / 4,  # ties
        "logits": torch.randn(IMAGES, CLASSES, generator=GENERATOR),
        "labels": torch.randint(0, CLASSES - 1, (IMAGES,), generator=GENERATOR),  # the last class has no image
        "concept_labels": torch.rand(IMAGES, CONCEPTS, generator=GENERATOR) > 0.5,
        "concept_maps": torch.randint(0, 4, (IMAGES, CONCEPTS, *SIZE), generator=GENERATOR).float(),
        "part_locations": torch.rand(IMAGES, 4, 2, generator=GENERATOR) * torch.tensor([4.0, 6.0]),
        "part_visible": torch.rand(IMAGES, 4, generator=GENERATOR) > 0.4,
        "part_masks": torch.rand(IMAGES, 2, *SIZE, generator=GENERATOR) > 0.5,
    }
    record["scores"][3], record["part_visible"][4], record["part_masks"][5] = NAN, False, False
    return record


RECORD = concept_record()


def part_of(*names):
    return {name: RECORD[name] for name in names}


def ranking(record, image, candidates=range(CONCEPTS)):
    """Candidates by falling contribution, ties to the lower index; the predicted class."""
    predicted = max(range(CLASSES), key=record["logits"][image].tolist().__getitem__)
    contributions = (WEIGHT[predicted].double() * record["scores"][image].double()).tolist()
    return sorted(candidates, key=lambda concept: -contributions[concept]), predicted


def usable(record):
    return [image for image in range(len(record["logits"])) if record["scores"][image].isfinite().all()]


def existence(record, subset="all"):
    found = []
    for image in usable(record):
        order, predicted = ranking(record, image)
        if subset == "all" or predicted == record["labels"][image]:
            found.append((sum(bool(record["concept_labels"][image, c]) for c in order[:2]) / 2, image))
    return found


def chances(cells, alpha=1):
    """Probability of every pixel to be in the region."""
    flat = [value for row in cells for value in row]
    n = math.floor(alpha * len(flat) / 12)
    return [min(max((n - sum(v > w for v in flat)) / flat.count(w), 0), 1) for w in flat]


def credit(record, image, concept, sides):
    region = chances(record["concept_maps"][image, concept].tolist())
    seen = [record["part_locations"][image, side].tolist() for side in sides if record["part_visible"][image, side]]
    return max((region[int(y) * SIZE[1] + int(x)] for x, y in seen), default=NAN), len(seen)


def location_pairs(record):
    """(image, credit, sides in sight, mean credit of the other parts)."""
    parts = [(0, 1), (2,), (3,)]
    pairs = []
    for image in usable(record):
        for concept in ranking(record, image, [0, 1, 3, 4])[0][:2]:
            own = tuple(side for side in PARTS[concept].tolist() if side >= 0)
            value, sides = credit(record, image, concept, own)
            others = mean([credit(record, image, concept, part)[0] for part in parts if part != own])
            pairs += [(image, value, sides, others)] if sides else []
    return pairs


def overlaps(record):
    found = []
    for image in usable(record):
        for concept in ranking(record, image, [0, 1, 3])[0][:2]:
            mask = record["part_masks"][image, MASKS[concept]].flatten().tolist()
            region = chances(record["concept_maps"][image, concept].tolist(), alpha=3)
            both = sum(share for share, inside in zip(region, mask, strict=True) if inside)
            found += [both / (6 + sum(mask) - both)] if any(mask) else []
    return mean(found)


def slow_importance(record):
    """CGIM3 of the concepts."""
    right = [i for i in usable(record) if ranking(record, i)[1] == record["labels"][i]]
    means = {}
    for label in range(CLASSES):
        rows = [record["scores"][i].double() for i in right if record["labels"][i] == label]
        if rows:
            means[label] = sum(rows) / len(rows) * WEIGHT[label].double()
    values = []
    for concept in range(CONCEPTS):
        one = [means[label][concept].item() for label in means]
        other = [TABLE[label, concept].double().item() for label in means]
        norms = math.sqrt(sum(x * x for x in one)) * math.sqrt(sum(x * x for x in other))
        product = sum(x * y for x, y in zip(one, other, strict=True))
        values.append(product / norms if norms and len(means) > 1 else NAN)
    return mean(values)


class Location(ConceptLocation):
    """Images of one size, as the record has a row per image."""

    reads = ConceptLocation.reads[:-1]

    def update(self, scores, logits, concept_maps, part_locations, part_visible):
        super().update(scores, logits, concept_maps, part_locations, part_visible, SIZE)


def build_importance():
    return ConceptGlobalImportance(WEIGHT, TABLE, kind=3)


def build_existence():
    return ConceptExistence(WEIGHT, k=2, prevalence_order=FIRST)


def build_correct():
    return ConceptExistence(WEIGHT, k=2, subset="correct")


def build_location():
    return Location(WEIGHT, PARTS, k=2)


def build_overlap():
    return ConceptMaskIntersectionOverUnion(WEIGHT, MASKS, k=2, alpha=3)


class TestConcepts(MetricTests):
    cases: ClassVar = {
        "importance": Case(
            build_importance, part_of("scores", "logits", "labels"), slow_importance,
            {"labels": torch.full((IMAGES,), 2)}, CONCEPTS + 1,
        ),
        "existence": Case(
            build_existence, part_of("scores", "logits", "labels", "concept_labels"),
            lambda record: mean([value for value, _ in existence(record)]), nowhere_finite(part_of("scores")), IMAGES,
        ),
        "existence of the correct": Case(
            build_correct, part_of("scores", "logits", "labels", "concept_labels"),
            lambda record: mean([value for value, _ in existence(record, "correct")]),
            {"labels": torch.full((IMAGES,), -1)}, IMAGES,
        ),
        "location": Case(
            build_location, part_of("scores", "logits", "concept_maps", "part_locations", "part_visible"),
            lambda record: mean([pair[1] for pair in location_pairs(record)]),
            {"part_locations": torch.full((IMAGES, 4, 2), 99.0)}, IMAGES,
        ),
        "overlap": Case(
            build_overlap, part_of("scores", "logits", "concept_maps", "part_masks"), overlaps,
            {"part_masks": torch.zeros(IMAGES, 2, *SIZE, dtype=torch.bool)}, IMAGES,
        ),
    }  # fmt: skip


def paired(differences):
    """Mean over the pairs of the images, and half of its 95 % interval with images as the clusters."""
    total, count = sum(sum(d) for d in differences), sum(len(d) for d in differences)
    ratio, n = total / count, len(differences)
    variance = sum((sum(d) - ratio * len(d)) ** 2 for d in differences) / (n - 1) * n / count**2
    return ratio, t.ppf(0.975, n - 1) * math.sqrt(variance)


def test_existence_beside_its_baselines():
    summary = updated(build_existence(), TestConcepts.cases["existence"].record).summary()
    labels = RECORD["concept_labels"]
    bases = {"chance": range(CONCEPTS), "prevalence": (3, 1)}  # not the two that are most frequent here
    for name, concepts in bases.items():
        base = {image: mean([float(labels[image, c]) for c in concepts]) for _, image in existence(RECORD)}
        lift, error = paired([[value - base[image]] for value, image in existence(RECORD)])
        assert same(summary[name], mean(base.values()))
        assert same(summary[f"lift_over_{name}"], lift)
        assert same(summary[f"lift_over_{name}"], summary["value"] - summary[name])
        bounds = [summary[f"lift_over_{name}_{end}"] for end in ("low", "high")]
        assert bounds == pytest.approx([lift - error, lift + error], abs=1e-6)
    alone = updated(build_correct(), TestConcepts.cases["existence of the correct"].record).summary()
    counts = sorted((labels[[image for _, image in existence(RECORD, "correct")]].double().mean(dim=0)).tolist())
    assert same(alone["prevalence"], sum(counts[-2:]) / 2)
    assert math.isnan(alone["lift_over_prevalence"])


def test_location_beside_its_baselines():
    summary = updated(build_location(), TestConcepts.cases["location"].record).summary()
    pairs = location_pairs(RECORD)
    images = sorted({pair[0] for pair in pairs})
    assert summary["n"] == len(images)
    chance = {sides: 1 - (1 - 2 / 24) ** sides for sides in (1, 2)}
    for name, base in (("chance", lambda pair: chance[pair[2]]), ("other_parts", lambda pair: pair[3])):
        defined = [pair for pair in pairs if not math.isnan(base(pair))]
        by_image = [[p[1] - base(p) for p in defined if p[0] == image] for image in images]
        by_image = [values for values in by_image if values]
        lift, error = paired(by_image)
        assert same(summary[name], mean([base(pair) for pair in pairs]))
        assert same(summary[f"lift_over_{name}"], lift)
        bounds = [summary[f"lift_over_{name}_{end}"] for end in ("low", "high")]
        assert bounds == pytest.approx([lift - error, lift + error], abs=1e-6)
    assert same(summary["image_mean"], mean([mean([p[1] for p in pairs if p[0] == image]) for image in images]))
    assert summary["curve_a12"] == 1
    assert same(summary["curve_a1"], summary["value"])
    wider = Location(WEIGHT, PARTS, k=2, alpha=3)
    assert same(updated(wider, TestConcepts.cases["location"].record).compute(), summary["curve_a3"])


def test_overlap_of_a_random_region():
    maps, mask = torch.zeros(1, 1, 4, 6), torch.zeros(1, 1, 4, 6, dtype=torch.bool)
    mask[0, 0, 0, :4] = True
    metric = ConceptMaskIntersectionOverUnion(torch.ones(1, 1), torch.tensor([0]), k=1)
    metric.update(torch.ones(1, 1), torch.ones(1, 1), maps, mask)
    summary = metric.summary()  # a = 1/12, m = 1/6; of a constant map each pixel is in the region with probability 1/12
    assert same(summary["chance"], (1 / 72) / (1 / 12 + 1 / 6 - 1 / 72))
    assert same(summary["value"], (4 / 12) / (2 + 4 - 4 / 12))


def test_global_importance_of_classes_and_correlations():
    record = TestConcepts.cases["importance"].record
    metric = updated(ConceptGlobalImportance(WEIGHT, TABLE, kind=2, axis="class"), record)
    assert metric.values().isnan().tolist() == [False, False, True]  # no image of the last class is right
    assert metric.averaged_over == "class"
    plain = updated(build_importance(), record).summary()
    centered = updated(ConceptGlobalImportance(WEIGHT, TABLE, kind=3, centered=True), record).compute()
    assert same(plain["centered"], centered)
    assert plain["skipped"] == 1  # the image without finite scores


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: ConceptGlobalImportance(WEIGHT, TABLE[:2]), r"`annotation` to be of shape \(3, 5\)"),
        (lambda: ConceptGlobalImportance(WEIGHT, TABLE, kind=4), "`kind` to be 1, 2 or 3, but got 4"),
        (lambda: ConceptExistence(WEIGHT, k=6), "at most the 5 concepts, but got 6"),
        (lambda: ConceptExistence(WEIGHT, subset="right"), "`subset` to be one of"),
        (lambda: ConceptLocation(WEIGHT, PARTS, k=5), "at most the 4 concepts, but got 5"),
        (lambda: ConceptLocation(WEIGHT, PARTS[:4], k=1), r"`concept_parts` to be of shape \(5, S\)"),
        (lambda: ConceptMaskIntersectionOverUnion(WEIGHT, MASKS, k=1, alpha=13), "`alpha` to be above 0"),
    ],
)
def test_bad_input(build, message):
    with pytest.raises(ValueError, match=message):
        build()
