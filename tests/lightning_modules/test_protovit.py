"""ProtoViT: what only this model has; everything common is in ``test_contract.py``."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from protometry.callbacks.phases.projection import nearest_patches
from protometry.lightning_modules.contract import empty_sources
from protometry.lightning_modules.protovit import PartSlots, ProtoViT

close = torch.testing.assert_close
OWN = torch.tensor([0, 0, 1, 1, 2, 2])  # classes of the prototypes


class Given(nn.Module):
    """In place of a backbone: images are their latent."""

    out_channels = 8

    def forward(self, images):
        return images


def make(parts: int = 4, radius: int = 1, **options) -> ProtoViT:
    torch.manual_seed(0)
    small = {"num_classes": 3, "image_size": (32, 40), "prototypes_per_class": 2}
    model = ProtoViT(parts=parts, radius=radius, **(small | options))
    model.backbone = Given()
    model.prototypes.vectors = nn.Parameter(torch.randn(6 * parts, 8))
    with torch.no_grad():
        model.slots.logits.normal_(std=0.02)
    return model.eval()


def latents(images: int = 3) -> torch.Tensor:
    return torch.randn(images, 8, 4, 5, generator=torch.Generator().manual_seed(1))


# -- from image to class ---------------------------------------------------------------------------------------------
def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def slow_match(latent, vectors, off, radius):
    """``{part: (cosine, cell)}`` of one prototype (P, D) in one latent (D, h, w), by the definition."""
    width, found, last = latent.shape[2], {}, None
    cells = latent.flatten(1).T.tolist()
    for parts in ([p for p, is_off in enumerate(off) if not is_off], [p for p, is_off in enumerate(off) if is_off]):
        while left := [part for part in parts if part not in found]:
            pairs = [
                (cosine(vectors[part], cells[cell]), part, cell)
                for part in left
                for cell in range(len(cells))
                if cell not in [used for _, used in found.values()]
                and (
                    last is None or max(abs(cell // width - last // width), abs(cell % width - last % width)) <= radius
                )
            ]
            value, part, last = max(pairs)
            found[part] = value, last
    return found


@pytest.mark.parametrize(("parts", "radius"), [(1, 1), (3, 1), (4, 1), (5, 2)])
def test_scores_maps_and_cells_follow_the_definition(parts, radius):
    model, images = make(parts, radius), latents()
    output = model.forward(images)
    openness = [[1 / (1 + math.exp(-100 * v)) for v in row] for row in model.slots.logits.tolist()]
    for image, unit in [(0, 0), (0, 3), (1, 5), (1, 1), (2, 2), (2, 4)]:
        off = [value < 0.5 for value in openness[unit]]
        vectors = model.prototypes.by_unit()[unit].tolist()
        found = slow_match(images[image], vectors, off, radius)
        expected = torch.zeros(20)
        first = next(iter(found.values()))[1]
        for part, (value, cell) in found.items():
            assert output.cells[image, unit, part] == (first if off[part] else cell)
            expected[cell] += value * openness[unit][part] * parts / sum(openness[unit])
        close(output.maps[image, unit].flatten(), expected, atol=2e-6, rtol=0)
        close(output.scores[image, unit], expected.sum(), atol=5e-6, rtol=0)


def test_a_part_that_is_off_neither_counts_nor_steers():
    """Part 0 fits cell 19 exactly, part 1 cell 0 with cosine 0.6 and cell 18, next to 19, with 0.5."""
    images = torch.zeros(1, 8, 20)
    images[0, 7] = 1e-3
    for cell, channel, value in [(19, 0, 1.0), (0, 1, 0.75), (0, 7, 1.0), (18, 1, 0.5), (18, 7, 0.75**0.5)]:
        images[0, channel, cell] = value
    model = make(2)
    with torch.no_grad():
        model.prototypes.by_unit()[0] = torch.eye(2, 8)
        model.slots.logits[0] = 2
    both = model.forward(images.view(1, 8, 4, 5))
    close(both.scores[0, 0], torch.tensor(1.5))
    assert both.cells[0, 0].tolist() == [19, 18]
    with torch.no_grad():
        model.slots.logits[0, 0] = -2
    one = model.forward(images.view(1, 8, 4, 5))
    close(one.scores[0, 0], torch.tensor(1.2))  # σ P / Σσ = 2 for the other
    assert one.cells[0, 0].tolist() == [0, 0]
    assert not model.units().vectors[0, :8].any()


# -- losses ----------------------------------------------------------------------------------------------------------
def test_losses_follow_their_formulas():
    model, images, labels = make().train(), latents(), torch.tensor([0, 2, 1])
    terms = {name: term(model.forward(images), {"label": labels}).item() for name, term in model.loss_terms().items()
             if name in ("cluster", "separation", "orthonormality", "coherence")}  # fmt: skip
    vectors, slots = model.prototypes.by_unit().tolist(), model.slots.logits.tolist()
    near = {}
    for image in range(3):
        for unit in range(6):
            found = slow_match(images[image], vectors[unit], [v < 0 for v in slots[unit]], 1)
            near[image, unit] = 1 - max(value for value, _ in found.values())
    for name, owned in (("cluster", True), ("separation", False)):
        least = [min(near[i, u] for u in range(6) if (OWN[u] == labels[i]) == owned) for i in range(3)]
        assert terms[name] == pytest.approx(sum(least) / 3, abs=1e-5)
    pairs = [sum(cosine(a, b) for a, b in zip(vectors[u], vectors[u + 1], strict=True)) for u in (0, 2, 4)]
    assert terms["orthonormality"] == pytest.approx(sum(2 * abs(pair) for pair in pairs), rel=1e-4)
    openness = [[1 / (1 + math.exp(-100 * v)) for v in row] for row in slots]
    pairs = [(i, j) for i in range(4) for j in range(i)]
    unlike = [
        max((1 - cosine(vectors[u][i], vectors[u][j])) * openness[u][i] * openness[u][j] for i, j in pairs)
        for u in range(6)
    ]
    assert terms["coherence"] == pytest.approx(sum(unlike) / 6, rel=1e-4)


# -- projection ------------------------------------------------------------------------------------------------------
def batch(images: torch.Tensor, labels: list[int]) -> list[dict]:
    keys = torch.arange(len(images))
    return [{"image": images, "sample_key": keys, "label": torch.tensor(labels), "sample_id": [*map(str, keys)]}]


def test_the_parts_of_a_prototype_come_from_one_image():
    """Prototype 0 of parts e0 and e1: image 0 shows e0 and e1 far apart, image 1 both less clearly side by side."""
    images = torch.zeros(2, 8, 20)
    images[:, 7] = 1
    images[0, :, 0], images[0, :, 19] = torch.eye(8)[0], torch.eye(8)[1]
    images[1, :, 7], images[1, :, 13] = torch.eye(8)[0] + 0.5 * torch.eye(8)[2], torch.eye(8)[1]
    model = make(2)
    with torch.no_grad():
        model.prototypes.by_unit()[0] = torch.eye(2, 8)
        model.slots.logits.fill_(2)
    nearest = nearest_patches(model, batch(images.view(2, 8, 4, 5), [0, 0]), torch.device("cpu"))
    assert nearest.sample_key[0] == 1
    assert nearest.cell[0] == 13  # found first
    assert nearest.distance[0].item() == pytest.approx(1 - (1 + 0.8**0.5) / 2, abs=1e-6)
    assert torch.equal(nearest.patch[0], torch.cat([images[1, :, 13], images[1, :, 7]]))


def test_projected_prototypes_score_all_their_parts_where_they_come_from():
    model, images, labels = make(), latents(6), [0, 0, 1, 1, 2, 2]
    nearest = nearest_patches(model, batch(images, labels), torch.device("cpu"))
    model.load_patches(nearest.patch, torch.ones(6, dtype=torch.bool), empty_sources(6))
    assert model.slots.is_off().any()
    scores = model.forward(images).scores[nearest.sample_key, torch.arange(6)]
    close(scores, torch.full((6,), 4.0), atol=1e-5, rtol=0)


def test_a_prototype_that_starts_in_a_window_is_found_there():
    model, images = make(), latents(1)
    start = model.embed(images)[0, :, 1, 2]
    with torch.no_grad():
        model.prototypes.by_unit()[3] = start.view(4, 8)
        model.slots.logits.fill_(2)
    assert model.part_cells(images)[0, 3].tolist() == [7, 8, 12, 13]
    assert model.distance_maps(images)[0, 3].amin().item() == pytest.approx(0, abs=1e-6)


# -- plans and bad input ---------------------------------------------------------------------------------------------
def test_rounded_slots_are_exact_and_keep_a_part():
    """Unit 0 has no patch and keeps its order, unit 2 was never trained."""
    slots = PartSlots(3, 4)
    with torch.no_grad():
        slots.logits[0] = torch.tensor([-0.3, -0.1, -0.2, -0.4])
        slots.logits[1] = torch.tensor([-0.001, 0.1, 0.001, 0.1])
    slots.round(torch.tensor([False, True, True]))
    assert slots()[0].tolist() == [0, 4, 0, 0]
    close(slots()[1], torch.tensor([4 / 3, 4 / 3, 4 / 3, 0]))
    assert slots.logits[2].tolist() == PartSlots(1, 4).logits[0].tolist()


def test_published_schedule():
    warm, joint, slots, last = ProtoViT.presets["original"].phases
    assert [phase.epochs for phase in (warm, joint, slots, last)] == [5, 10, 5, 15]
    assert warm.trainable == {"backbone": 1e-7, "prototypes": 3e-3}
    assert joint.trainable == {"backbone": 5e-5, "prototypes": 3e-3}
    assert joint.losses["coherence"] == 3e-3
    assert slots.trainable == {"slots": 5e-5}
    assert slots.losses["coherence"] == 1e-6
    assert last.on_enter == ("project",)
    assert last.losses == {"cross_entropy": 1.0, "off_class_l1": 1e-2}


@pytest.mark.parametrize(("options", "message"), [
    ({"prototypes_per_class": 0}, "`prototypes_per_class` to be at least 1, but got 0"),
    ({"parts": 0}, "`parts` to be at least 1, but got 0"),
    ({"radius": 0}, "`radius` to be at least 1, but got 0"),
    ({"parts": 5}, r"`parts` to be at most 4, the cells .* grid \(4, 5\) has within `radius` 1, .* but got 5"),
    ({"parts": 3, "image_size": (8, 64)}, r"`parts` to be at most 2, .* grid \(1, 8\)"),
])  # fmt: skip
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)
