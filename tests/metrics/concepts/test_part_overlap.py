"""How well the maps of the deciding concepts cover their part, compared with a random region."""

import math
from functools import partial

import torch

from protometry.metrics import ConceptMaskIntersectionOverUnion
from tests.metrics.concepts.decisions import IMAGES, MASKS, SIZE, WEIGHT, chances, part_of, ranking, usable
from tests.metrics.tester import Case, MetricTests, mean, same


def overlaps(record, alpha):
    size = math.floor(2 * alpha)
    collected = []
    for image in usable(record):
        for concept in ranking(record, image, [0, 1, 3])[0][:2]:
            mask = record["part_masks"][image, MASKS[concept]].flatten().tolist()
            region = chances(record["concept_maps"][image, concept].tolist(), alpha)
            both = sum(share for share, inside in zip(region, mask, strict=True) if inside)
            collected += [both / (size + sum(mask) - both)] if any(mask) else []
    return mean(collected)


class TestOverlap(MetricTests):
    cases = {
        f"alpha {alpha}": Case(
            partial(ConceptMaskIntersectionOverUnion, WEIGHT, MASKS, k=2, alpha=alpha),
            part_of("scores", "logits", "concept_maps", "part_masks"),
            partial(overlaps, alpha=alpha),
            {"part_masks": torch.zeros(IMAGES, 2, *SIZE, dtype=torch.bool)},
            IMAGES,
        )
        for alpha in (1, 3.5)
    }


def test_overlap_of_a_random_region():
    maps, mask = torch.zeros(1, 1, 4, 6), torch.zeros(1, 1, 4, 6, dtype=torch.bool)
    mask[0, 0, 0, :4] = True
    metric = ConceptMaskIntersectionOverUnion(torch.ones(1, 1), torch.tensor([0]), k=1)
    metric.update(torch.ones(1, 1), torch.ones(1, 1), maps, mask)
    summary = metric.summary()  # a = 1/12, m = 1/6; of a constant map each pixel is in the region with probability 1/12
    assert same(summary["chance"], (1 / 72) / (1 / 12 + 1 / 6 - 1 / 72))
    assert same(summary["value"], (4 / 12) / (2 + 4 - 4 / 12))
