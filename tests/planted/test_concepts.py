"""Planted truth of the concept metrics: bottlenecks whose inputs are known, on SketchBirds.

They look at no pixel but the first, which names the scene, and answer from its annotations: 1 for a concept of the
image, 0 for others, with the label map's pixels of its part for a map. A class has weight 1 for its concepts, -1 else.
"""

import re
from functools import cache

import pytest
import torch

from protometry.explanations import Upsample
from protometry.lightning_modules.contract import ModelOutput, UnitTable
from protometry.metrics.suite import FAMILIES
from tests.planted.models import Planted, measure
from tests.planted.scenes import CLASSES, IMAGES, SIZE, birds, scenes

TABLES = birds().tables
TABLE = TABLES.class_concepts_binary
CONCEPTS = len(TABLE[0])
MASKED = {"leg": "foot"}
AXES = ("concept", "class")
REGION = SIZE * SIZE // 12
# these need more images than the evaluated ones
SUITE = [key for key in FAMILIES["concepts"].keys if not re.search("anec|completeness|tcav|locality", key)]
OWN = torch.arange(CONCEPTS)
SWAPPED = OWN.view(-1, 2).flip(1).flatten()  # every concept with its opposite: red and green wing
MOVED = OWN.roll(2)  # mostly to another part


def part_masks():
    """``(n, L, H, W)`` the pixels of the part of every concept; none of those without a part."""
    names = [TABLES.part_group_names[part] if part >= 0 else "" for part in TABLES.concept_to_part.tolist()]
    codes = [torch.tensor(TABLES.label_map_codes.get(MASKED.get(name, name), ())) for name in names]
    maps = torch.stack([scene["label_map"] for scene in scenes()])
    return torch.stack([torch.isin(maps, code) for code in codes], dim=1)


MASKS, PRESENT = part_masks(), torch.stack([scene["concepts"] for scene in scenes()])


class Reader(Planted):
    """Reads concepts from the annotations, but calls concept ``source[l]`` concept l; its head knows."""

    def __init__(self, source=OWN, noise=False):
        super().__init__(2.0 * TABLE[:, source] - 1, TABLE[:, source].T)
        self.source, self.noise = source, noise

    def forward(self, images):
        rows = (images[:, 0, 0, 0] * 255).round().long()
        maps = MASKS[rows][:, self.source].float()
        if self.noise:
            maps = torch.stack(
                [torch.rand(maps.shape[1:], generator=torch.Generator().manual_seed(row)) for row in rows.tolist()]
            )
        scores = PRESENT[rows][:, self.source].float()
        return ModelOutput(self.head(scores), scores, maps)

    def units(self):
        return UnitTable("concept", self.active, self.owner, "mean", self.weight.detach(), concepts=OWN)


READERS = {
    "perfect": Reader,
    "swapped": lambda: Reader(SWAPPED),
    "moved": lambda: Reader(MOVED),
    "random maps": lambda: Reader(noise=True),
}


@cache
def measured(name):
    samples = [{**scene, "image": torch.full_like(scene["image"], row / 255)} for row, scene in enumerate(scenes())]
    evaluation = measure([*SUITE, "general/accuracy"], READERS[name](), samples, birds(), Upsample())
    skipped = ("accuracy", "ece", "task_leakage", "interconcept_leakage", "residual_share")
    assert evaluation.skipped.keys() == {f"concepts/{name}" for name in skipped}
    assert evaluation.protocol["units_named_by"] == "model"
    return evaluation.metrics


def first(k, masked):
    """The k first concepts of each image that are there; of a part if ``masked``."""
    eligible = PRESENT & (TABLES.concept_to_part >= 0) if masked else PRESENT
    return [row.nonzero().flatten()[:k].tolist() for row in eligible]


@pytest.mark.parametrize("k", [1, 3, 5])
def test_a_perfect_reader_reaches_the_ceilings(k):
    """All of its k first concepts are there; the 341 pixels of a region hold the part and its point.

    A part has m < 341 pixels: the overlap is m / 341.
    """
    result = measured("perfect")
    assert result["general/accuracy"]["value"] == 1
    assert result["concepts/oracle_impurity"]["value"] == 0
    niche = result["concepts/niche_impurity"]
    assert niche["value"] == niche["oracle"]
    assert all(result[f"concepts/cgim{kind}_{axis}"]["centered"] > 0.99 for kind in (1, 2, 3) for axis in AXES)
    assert result[f"concepts/cem@{k}"]["value"] == 1
    assert result[f"concepts/clm@{k}"]["value"] == 1
    areas = [MASKS[n, c].sum().item() / REGION for n, row in enumerate(first(k, masked=True)) for c in row]
    areas = [area for area in areas if area > 0]
    assert result[f"concepts/part_iou@{k}"]["value"] == pytest.approx(sum(areas) / len(areas))
    for key, base in (("cem", "chance"), ("cem", "prevalence"), ("clm", "chance"), ("clm", "other_parts")):
        entry = result[f"concepts/{key}@{k}"]
        assert entry[f"lift_over_{base}_low"] > 0.2, (key, base)
        assert entry[f"lift_over_{base}"] == pytest.approx(1 - entry[base], abs=0.02)
    training = torch.stack(
        [sample["concepts"] for sample in map(birds().dataset("projection").__getitem__, range(256))]
    )
    frequent = training.sum(dim=0).argsort(descending=True, stable=True)[:k]
    assert result[f"concepts/cem@{k}"]["prevalence"] == pytest.approx(PRESENT[:, frequent].double().mean().item())


@pytest.mark.parametrize("k", [1, 3, 5])
def test_shuffled_concepts_are_worst(k):
    """What is called red is green: existence is 0, weights and scores follow the opposite class table.

    Location cannot tell that, as both are about one part; where the parts differ, other parts are hit more often.
    """
    assert (TABLE[:, ::2] ^ TABLE[:, 1::2]).all()
    swapped, moved = measured("swapped"), measured("moved")
    for reader in (swapped, moved):
        assert reader["general/accuracy"]["value"] == 1
    assert swapped[f"concepts/cem@{k}"]["value"] == 0
    assert moved["concepts/oracle_impurity"]["value"] > 0.4
    assert swapped[f"concepts/clm@{k}"]["value"] > 0.99
    assert all(swapped[f"concepts/cgim{kind}_{axis}"]["centered"] < -0.99 for kind in (1, 2, 3) for axis in AXES)
    assert moved[f"concepts/clm@{k}"]["value"] < 0.2
    assert moved[f"concepts/clm@{k}"]["lift_over_other_parts"] <= 0


@pytest.mark.parametrize("k", [1, 3, 5])
def test_random_maps_are_at_chance(k):
    result = measured("random maps")
    assert result[f"concepts/cem@{k}"]["value"] == 1
    for key, baselines in (("clm", ("chance", "other_parts")), ("part_iou", ("chance",))):
        for base in baselines:
            entry = result[f"concepts/{key}@{k}"]
            low, high = entry[f"lift_over_{base}_low"], entry[f"lift_over_{base}_high"]
            assert low - (high - low) / 2 < 0 < high + (high - low) / 2, (key, base)  # four standard errors


def test_the_weights_of_a_reader_are_the_class_table():
    """cos(2V - 1; F) with the frequencies F of training, where parts may be missing."""
    weight, table = 2.0 * TABLE - 1, TABLES.class_concepts
    for axis, along in (("concept", 0), ("class", 1)):
        expected = torch.nn.functional.cosine_similarity(weight, table, dim=along).mean().item()
        assert measured("perfect")[f"concepts/cgim1_{axis}"]["value"] == pytest.approx(expected, abs=1e-6)
    assert {len(set(map(tuple, TABLE.tolist()))), len(scenes())} == {CLASSES, IMAGES}
