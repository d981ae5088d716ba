import math

import pytest
import torch
from torch.nn import functional as F

from metrics.functional import (
    concept_activation_maps,
    concept_auc,
    concept_existence,
    concept_existence_baselines,
    concept_global_importance,
    concept_importance,
    concept_location,
    concept_mask_intersection_over_union,
    name_units,
)

NAN = math.nan
HALVES = [torch.float16, torch.bfloat16]


def approx(values):
    return pytest.approx(values, abs=1e-6, nan_ok=True)


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


# -- CGIM -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("weight", "annotation", "means", "kind", "plain", "centered"),
    [
        ((3, 4, 0), (1, 0, 0), None, 1, 0.6, 0.277350),
        ((9, 9, 9), (1, 1, 0), (0, 2, 2), 2, 0.5, -0.5),
        ((9, 9, 9), (1, 1, 0), (0, 2, NAN), 2, 0.707107, NAN),  # over two classes, where V is constant
        ((3, 4, 1), (1, 0, 0), (1, 0.5, 0), 3, 0.832050, 0.755929),
        ((2, 2, 2, 2), (1, 0, 0.5, 0.5), None, 1, 0.816497, NAN),  # mean / rms; a constant has no correlation
        ((-1, -0.5, 0), (1, 0.5, 0), None, 1, -1, -1),
        ((0, 0, 0), (1, 0, 0), None, 1, NAN, NAN),
        ((1, 1, 1), (1, 0, 0), (1, NAN, NAN), 2, NAN, NAN),  # one class is left
        ((0.1, 0.1, 0.1), (1, 0.3, 0), None, 1, 0.718902, NAN),  # 1.3 / sqrt(3 * 1.09); rounding leaves something
    ],
)
def test_global_importance_by_hand(weight, annotation, means, kind, plain, centered):
    given = None if means is None else column(*means)
    for expected, is_centered in ((plain, False), (centered, True)):
        found = concept_global_importance(column(*weight), column(*annotation), given, kind, centered=is_centered)
        assert found.tolist() == approx([expected]), is_centered


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
    assert by_concept.tolist() == approx(concepts)
    assert by_class.tolist() == approx(rows)
    stretch = torch.tensor([1.0, 2.0, 0.5, 4.0])  # of a concept: the class version changes
    assert concept_global_importance(weight * stretch, annotation, means * stretch, kind).tolist() == approx(concepts)
    moved = concept_global_importance(weight * stretch, annotation, means * stretch, kind, axis="class")
    assert (moved - by_class).abs().nan_to_num().max() > 1e-3


# -- CEM --------------------------------------------------------------------------------------------------------------
WEIGHT, VALUES, PRESENT = (
    torch.tensor([[-1.0, 2.0, 1.0]]), torch.tensor([[-0.9, 0.2, -0.5]]), torch.tensor([[False, True, False]])
)  # fmt: skip


@pytest.mark.parametrize(
    ("order", "k", "expected"),
    [
        ("signed", 1, 0), ("signed", 2, 0.5), ("signed", 3, 1 / 3), ("abs", 2, 0), ("positive_evidence", 1, 1),
        ("positive_evidence", 3, 1),  # of one concept
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [*HALVES, torch.float64])
def test_existence_by_hand(order, k, expected, dtype):
    importance = concept_importance(VALUES.to(dtype), WEIGHT, torch.tensor([0]), order=order)
    if order == "signed":
        assert importance[0].tolist() == pytest.approx([0.9, 0.4, -0.5], abs=0.01)
    assert concept_existence(importance, PRESENT, k).item() == approx(expected)


def test_existence_ties_baselines_and_what_is_undefined():
    equal = torch.ones(1, 3)
    assert concept_existence(equal, torch.tensor([[False, True, True]]), 1).item() == 0
    labels = torch.tensor([[True, True, False], [True, False, False]])
    prevalence = labels.double().mean(dim=0)
    for k, expected in ((1, 1.0), (2, 0.75)):
        found = concept_existence_baselines(prevalence, k)
        assert {name: value.item() for name, value in found.items()} == approx({"chance": 0.5, "prevalence": expected})
    other = concept_existence_baselines(prevalence, 1, order=torch.tensor([2, 1, 0]))
    assert other["prevalence"].item() == 0
    for broken in (NAN, math.inf):
        assert concept_existence(torch.tensor([[1.0, broken]]), torch.ones(1, 2, dtype=torch.bool), 1).isnan().all()
    assert concept_existence(torch.full((1, 2), -math.inf), torch.ones(1, 2, dtype=torch.bool), 1).isnan().all()
    for k in (0, 4):
        with pytest.raises(ValueError, match=f"`k` to be at least 1 and at most the 3 concepts, but got {k}"):
            concept_existence(equal, labels[:1], k)


# -- CLM and part-mask IoU --------------------------------------------------------------------------------------------
SIZE = (4, 6)


def maps_of(*cells):
    """A map of 4 x 6 pixels that is 0 but for {(row, column): value}."""
    found = torch.zeros(1, len(cells), *SIZE)
    for index, values in enumerate(cells):
        for place, value in values.items():
            found[0, index][place] = value
    return found


def located(values, places, visible=None, alpha=1.0):
    points = torch.tensor([[[(column + 0.9, row + 0.2) for row, column in places]]])
    seen = torch.tensor([[visible or [True] * len(places)]])
    return concept_location(values, points, seen, SIZE, alpha).item()


RISING = torch.arange(24.0).view(1, 1, *SIZE)
FIVES = maps_of({(0, 0): 9, (1, 0): 5, (1, 1): 5, (1, 2): 5, (1, 3): 5})


@pytest.mark.parametrize(
    ("values", "places", "visible", "alpha", "expected"),
    [
        (RISING, [(3, 4)], None, 1, 1), (RISING, [(3, 3)], None, 1, 0),  # 2 pixels: the 2nd and the 3rd largest
        (FIVES, [(1, 2)], None, 1, 1 / 4), (FIVES, [(1, 2)], None, 2, 3 / 4),
        (FIVES, [(2, 2)], None, 2, 0), (FIVES, [(2, 2)], None, 6, 7 / 19),
        (torch.full((1, 1, *SIZE), 3.0), [(2, 2)], None, 1, 1 / 12),
        (torch.zeros(1, 1, 1, 1), [(0, 0)], None, 1, 1 / 12),
        (RISING, [(0, 0), (3, 5)], None, 1, 1), (RISING, [(0, 0), (3, 5)], [True, False], 1, 0),
        (RISING, [(0, 0), (3, 5)], [False, False], 1, NAN), (RISING, [(0, 0)], None, 12, 1),
        (RISING, [(4, 0)], None, 12, NAN), (RISING, [(0, -1)], None, 12, NAN),  # outside the image
        (RISING / 0, [(0, 0)], None, 12, NAN),
    ],
)  # fmt: skip
def test_location_by_hand(values, places, visible, alpha, expected):
    assert located(values, places, visible, alpha) == approx(expected)
    assert located(values * 3 + (0 if values.isnan().any() else 7), places, visible, alpha) == approx(expected)


def test_a_constant_map_at_224():
    points, visible = torch.full((1, 1, 1, 2), 100.0), torch.ones(1, 1, 1, dtype=torch.bool)
    for dtype in (*HALVES, torch.float32):  # upsampling must not leave a ripple
        maps = torch.full((1, 1, 7, 7), 0.3, dtype=dtype)
        assert concept_location(maps, points, visible, (224, 224)).item() == approx(4181 / 50176)


def slow_region(cells, alpha):
    """Probability of every pixel to be in the region, for a map that needs no upsampling."""
    flat = [value for row in cells for value in row]
    n = math.floor(alpha * len(flat) / 12)
    ranks = [(sum(v > value for v in flat), sum(v == value for v in flat)) for value in flat]
    return [min(max((n - higher) / equal, 0), 1) for higher, equal in ranks], n


@pytest.mark.parametrize("alpha", [1, 3.5, 6])
def test_location_and_overlap_by_definition(alpha):
    generator = torch.Generator().manual_seed(1)
    maps = torch.randint(-3, 4, (3, 2, 4, 6), generator=generator).float()
    points = torch.rand(3, 2, 2, 2, generator=generator) * torch.tensor([6.0, 4.0])
    visible = torch.rand(3, 2, 2, generator=generator) > 0.3
    masks = torch.rand(3, 2, 4, 6, generator=generator) > 0.6
    masks[0, 0] = False
    located, overlap = [], []
    for b in range(3):
        for k in range(2):
            share, n = slow_region(maps[b, k].tolist(), alpha)
            sides = [points[b, k, s].tolist() for s in range(2) if visible[b, k, s]]
            located.append(max((share[int(y) * 6 + int(x)] for x, y in sides), default=NAN))
            mask = masks[b, k].flatten().tolist()
            both = sum(s for s, m in zip(share, mask, strict=True) if m)
            overlap.append(both / (n + sum(mask) - both) if any(mask) else NAN)
    assert concept_location(maps, points, visible, SIZE, alpha).flatten().tolist() == approx(located)
    assert concept_mask_intersection_over_union(maps, masks, SIZE, alpha).flatten().tolist() == approx(overlap)
    turned = maps.transpose(2, 3).contiguous().transpose(2, 3)  # not contiguous
    assert concept_location(turned, points, visible, SIZE, alpha).flatten().tolist() == approx(located)


def test_location_upsamples_bilinearly():
    maps = torch.randn(1, 1, 3, 4, generator=torch.Generator().manual_seed(2))
    large = F.interpolate(maps.double(), (9, 8), mode="bilinear", align_corners=False)[0, 0]
    share, _ = slow_region([[round(value, 9) for value in row] for row in large.tolist()], 6)
    places = torch.tensor([[(x + 0.5, y + 0.5) for y in range(9) for x in range(8)]])
    found = concept_location(
        maps.expand(1, 72, 3, 4), places[:, :, None], torch.ones(1, 72, 1, dtype=torch.bool), (9, 8), alpha=6
    )
    assert found[0].tolist() == approx(share)


@pytest.mark.parametrize("alpha", [0, -1, 12.5])
def test_a_region_must_have_a_size(alpha):
    for kernel, other in (
        (concept_location, (torch.zeros(1, 1, 1, 2), torch.ones(1, 1, 1, dtype=torch.bool))),
        (concept_mask_intersection_over_union, (torch.ones(1, 1, 4, 6, dtype=torch.bool),)),
    ):
        with pytest.raises(ValueError, match="`alpha` to be above 0 and at most 12"):
            kernel(RISING, *other, SIZE, alpha)


def test_no_image():
    nothing = torch.zeros(0, 2, 4, 6)
    assert concept_location(nothing, torch.zeros(0, 2, 1, 2), nothing[..., 0, :1] > 0, SIZE).shape == (0, 2)
    assert concept_mask_intersection_over_union(nothing, nothing > 0, SIZE).shape == (0, 2)


# -- CoAM and names ---------------------------------------------------------------------------------------------------
def test_activation_maps_have_the_projection_as_their_mean():
    generator = torch.Generator().manual_seed(3)
    latent, vectors = torch.randn(2, 5, 3, 4, generator=generator), torch.randn(6, 5, generator=generator)
    maps = concept_activation_maps(latent, vectors)
    assert torch.allclose(5 * maps.mean(dim=(2, 3)), latent.mean(dim=(2, 3)) @ vectors.T, atol=1e-6)


def test_areas_by_definition():
    generator = torch.Generator().manual_seed(4)
    scores = torch.randint(0, 5, (17, 3), generator=generator).float()
    labels = torch.rand(17, 4, generator=generator) > 0.6
    labels[:, 2], labels[:, 3] = True, False
    for unit, row in enumerate(concept_auc(scores, labels).tolist()):
        for concept, area in enumerate(row):
            have = [scores[n, unit] for n in range(17) if labels[n, concept]]
            lack = [scores[n, unit] for n in range(17) if not labels[n, concept]]
            wins = [float(one > two) + 0.5 * float(one == two) for one in have for two in lack]
            assert area == approx(sum(wins) / len(wins) if wins else NAN)


def test_names():
    auc = torch.tensor([[0.7, 0.8, 0.8], [0.59, NAN, 0.1], [NAN, NAN, NAN], [0.6, 0.2, NAN]])
    assert name_units(auc).tolist() == [1, -1, -1, 0]
