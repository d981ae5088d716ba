"""Decisions of a model on images whose concepts are known, and the ranking of concepts by the definition."""

import math

import torch

from protometry.metrics.functional import lift_interval

NAN, SIZE, IMAGES, CLASSES, CONCEPTS = math.nan, (6, 4), 13, 3, 5
GENERATOR = torch.Generator().manual_seed(8)
WEIGHT = torch.randn(CLASSES, CONCEPTS, generator=GENERATOR)
TABLE = torch.rand(CLASSES, CONCEPTS, generator=GENERATOR)
PARTS = torch.tensor([[0, 1], [2, -1], [-1, -1], [2, -1], [3, -1]])  # two sides; the third concept has no part
MASKS = torch.tensor([0, 1, -1, 1, -1])
FIRST = torch.tensor([3, 1, 0, 2, 4])  # by how frequent concepts are in training


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
    record["concept_maps"] = record["concept_maps"].transpose(2, 3).contiguous().transpose(2, 3)  # not contiguous
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


def chances(cells, alpha=1):
    """Probability of every pixel to be in the region."""
    flat = [value for row in cells for value in row]
    n = math.floor(alpha * len(flat) / 12)
    return [min(max((n - sum(v > w for v in flat)) / flat.count(w), 0), 1) for w in flat]


def paired(images):
    """Difference of the means of the (value, baseline) pairs of the images, and its bounds, images as the clusters."""
    rows = torch.tensor([[*map(sum, zip(*pairs, strict=True)), len(pairs)] for pairs in images], dtype=torch.float64)
    totals = rows.sum(dim=0)
    bounds = lift_interval(totals, rows.T @ rows, torch.tensor(len(images)))
    return float((totals[0] - totals[1]) / totals[2]), [bound.item() for bound in bounds]
