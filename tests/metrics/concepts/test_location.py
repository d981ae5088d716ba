"""Whether the maps of the deciding concepts are high at their part, compared with random regions and other parts."""

import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from protometry.metrics import ConceptLocation
from protometry.metrics.functional import concept_activation_maps, concept_location
from tests.metrics.concepts.decisions import (
    IMAGES,
    NAN,
    PARTS,
    RECORD,
    SIZE,
    WEIGHT,
    chances,
    paired,
    part_of,
    ranking,
    usable,
)
from tests.metrics.tester import Case, MetricTests, mean, same, updated

READ = part_of("scores", "logits", "concept_maps", "part_locations", "part_visible")


def approx(values):
    return pytest.approx(values, abs=1e-6, nan_ok=True)


GRID = (4, 6)


def maps_of(*cells):
    """A map of 4 x 6 pixels that is 0 but for {(row, column): value}."""
    result = torch.zeros(1, len(cells), *GRID)
    for index, values in enumerate(cells):
        for place, value in values.items():
            result[0, index][place] = value
    return result


def located(values, places, visible=None, alpha=1.0):
    points = torch.tensor([[[(column + 0.9, row + 0.2) for row, column in places]]])
    seen = torch.tensor([[visible or [True] * len(places)]])
    return concept_location(values, points, seen, GRID, alpha).item()


RISING = torch.arange(24.0).view(1, 1, *GRID)
FIVES = maps_of({(0, 0): 9, (1, 0): 5, (1, 1): 5, (1, 2): 5, (1, 3): 5})


@pytest.mark.parametrize(
    ("values", "places", "visible", "alpha", "expected"),
    [
        (RISING, [(3, 4)], None, 1, 1), (RISING, [(3, 3)], None, 1, 0),  # 2 pixels: the 2nd and the 3rd largest
        (FIVES, [(1, 2)], None, 1, 1 / 4), (FIVES, [(1, 2)], None, 2, 3 / 4),
        (FIVES, [(2, 2)], None, 2, 0), (FIVES, [(2, 2)], None, 6, 7 / 19),
        (torch.full((1, 1, *GRID), 3.0), [(2, 2)], None, 1, 1 / 12),
        (torch.zeros(1, 1, 1, 1), [(0, 0)], None, 1, 1 / 12),
        (RISING, [(0, 0), (3, 5)], None, 1, 1), (RISING, [(0, 0), (3, 5)], [True, False], 1, 0),
        (RISING, [(0, 0), (3, 5)], [False, False], 1, NAN), (RISING, [(0, 0)], None, 12, 1),
        (RISING, [(4, 0)], None, 12, NAN), (RISING, [(0, -1)], None, 12, NAN),  # outside the image
        (RISING / 0, [(0, 0)], None, 12, NAN), (RISING, [(3, 5)], None, 0.4, NAN),  # no pixel in the region
    ],
)  # fmt: skip
def test_location_by_hand(values, places, visible, alpha, expected):
    assert located(values, places, visible, alpha) == approx(expected)
    assert located(values * 3 + (0 if values.isnan().any() else 7), places, visible, alpha) == approx(expected)


def test_a_constant_map_at_224():
    points, visible = torch.full((1, 1, 1, 2), 100.0), torch.ones(1, 1, 1, dtype=torch.bool)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):  # upsampling must not leave a ripple
        maps = torch.full((1, 1, 7, 7), 0.3, dtype=dtype)
        assert concept_location(maps, points, visible, (224, 224)).item() == approx(4181 / 50176)


def test_location_upsamples_bilinearly():
    maps = torch.randn(1, 1, 3, 4, generator=torch.Generator().manual_seed(2))
    large = F.interpolate(maps.double(), (9, 8), mode="bilinear", align_corners=False)[0, 0]
    share = chances([[round(value, 9) for value in row] for row in large.tolist()], 6)
    places = torch.tensor([[(x + 0.5, y + 0.5) for y in range(9) for x in range(8)]])
    result = concept_location(
        maps.expand(1, 72, 3, 4), places[:, :, None], torch.ones(1, 72, 1, dtype=torch.bool), (9, 8), alpha=6
    )
    assert result[0].tolist() == approx(share)


def test_activation_maps_have_the_projection_as_their_mean():
    generator = torch.Generator().manual_seed(3)
    latent, vectors = torch.randn(2, 5, 3, 4, generator=generator), torch.randn(6, 5, generator=generator)
    maps = concept_activation_maps(latent, vectors)
    assert torch.allclose(5 * maps.mean(dim=(2, 3)), latent.mean(dim=(2, 3)) @ vectors.T, atol=1e-6)


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


class Location(ConceptLocation):
    """Images of one size, as the record has a row per image."""

    def update(self, scores, logits, concept_maps, part_locations, part_visible):
        super().update(scores, logits, concept_maps, part_locations, part_visible, SIZE)


class TestLocation(MetricTests):
    cases = {
        "location": Case(
            partial(Location, WEIGHT, PARTS, k=2), READ,
            lambda record: mean([pair[1] for pair in location_pairs(record)]),
            {"part_locations": torch.full((IMAGES, 4, 2), 99.0)}, IMAGES,
        ),
    }  # fmt: skip


def test_location_beside_its_baselines():
    summary = updated(Location(WEIGHT, PARTS, k=2), READ).summary()
    pairs = location_pairs(RECORD)
    images = sorted({pair[0] for pair in pairs})
    assert summary["n"] == len(images)
    chance = {sides: 1 - (1 - 2 / 24) ** sides for sides in (1, 2)}
    for name, base in (("chance", lambda pair: chance[pair[2]]), ("other_parts", lambda pair: pair[3])):
        defined = [pair for pair in pairs if not math.isnan(base(pair))]
        by_image = [[(p[1], base(p)) for p in defined if p[0] == image] for image in images]
        by_image = [values for values in by_image if values]
        lift, expected = paired(by_image)
        assert same(summary[name], mean([base(pair) for pair in pairs]))
        assert same(summary[f"lift_over_{name}"], lift)
        bounds = [summary[f"lift_over_{name}_{end}"] for end in ("low", "high")]
        assert bounds == pytest.approx(expected)
    assert same(summary["image_mean"], mean([mean([p[1] for p in pairs if p[0] == image]) for image in images]))
    assert summary["curve_a12"] == 1
    assert same(summary["curve_a1"], summary["value"])
    wider = Location(WEIGHT, PARTS, k=2, alpha=3)
    assert same(updated(wider, READ).compute(), summary["curve_a3"])


@pytest.mark.parametrize(("alpha", "value"), [(1, NAN), (3, 1)])
def test_an_image_too_small_for_a_region(alpha, value):
    metric = ConceptLocation(torch.ones(1, 1), torch.tensor([[0]]), k=1, alpha=alpha)
    maps = torch.tensor([[[[1.0, 0, 0]]]])
    metric.update(torch.ones(1, 1), torch.ones(1, 1), maps, torch.zeros(1, 1, 2), torch.tensor([[True]]), (1, 4))
    summary = metric.summary()
    assert [summary["value"], summary["curve_a1"], summary["curve_a3"]] == approx([value, NAN, value])
