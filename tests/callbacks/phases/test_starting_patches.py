"""Prototypes that start as random patches: real patches with their sources, drawn alike everywhere."""

import pytest
import torch

from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.phases.starting_patches import (
    TYPICAL,
    recurring,
    recurring_patches,
    sample_patches,
    spread_patches,
    typical_patches,
    typicality,
)
from protometry.lightning_modules import ProtoPool, ProtoTree
from tests.lightning_modules.registry import TINY_PROTOPNET, tiny_birds, tiny_trainer
from tests.rounding import terms_of, tolerance


def started(data_seed=0, torch_seed=0):
    torch.manual_seed(torch_seed)
    data = tiny_birds(seed=data_seed)
    torch.manual_seed(7)
    model = ProtoTree(num_classes=8, image_size=(32, 32), depth=6, prototype_channels=8)
    trainer = tiny_trainer()
    trainer.datamodule = data
    torch.manual_seed(torch_seed)
    return model, data, sample_patches(trainer, model)


def test_every_prototype_is_the_patch_its_source_names():
    model, data, report = started()
    units = model.units()
    images = {int(sample["sample_key"]): sample for sample in (data.dataset("projection")[i] for i in range(24))}
    with evaluation_mode(model), torch.no_grad():
        for unit in range(len(units.vectors)):
            sample = images[int(units.source.sample_key[unit])]
            latent = model(sample["image"][None]).latent[0]
            patch = latent[:, units.source.row[unit], units.source.col[unit]]
            torch.testing.assert_close(units.vectors[unit], patch, rtol=0, atol=tolerance(terms_of(model), latent))
            assert units.source.sample_id[unit] == sample["sample_id"]
            assert units.source.label[unit] == sample["label"]
    assert (units.source.distance == 0).all()
    assert report["images"] == len(set(units.source.sample_key.tolist())) > 12
    assert len({(row, col) for row, col in zip(units.source.row.tolist(), units.source.col.tolist(), strict=True)}) > 8


def test_the_draw_depends_on_the_seed_of_the_data_only():
    first, again, other = (started(*seeds)[0].units().source for seeds in ((0, 0), (0, 5), (1, 0)))
    assert torch.equal(first.sample_key, again.sample_key)
    assert torch.equal(first.col, again.col)
    assert not torch.equal(first.sample_key, other.sample_key)


def test_training_mode_is_kept():
    model, _, _ = started()
    assert all(part.training for part in model.modules())


def spread(data, model, action=spread_patches):
    trainer = tiny_trainer()
    trainer.datamodule = data
    return action(trainer, model)


def pool_with_shared_prototypes():
    """Prototype 0 is of classes 0 to 3, prototype 1 of all, prototype 2 of 4 to 7, prototype 3 of none."""
    model = ProtoPool(num_classes=8, image_size=(32, 32), num_prototypes=4, slots_per_class=2)
    model.slots.logits.data.zero_()
    model.slots.logits.data[:4, 0, 0] = model.slots.logits.data[4:, 2, 0] = model.slots.logits.data[:, 1, 1] = 1
    return model


@pytest.mark.parametrize(
    "model",
    [
        *(
            TINY_PROTOPNET(num_classes=8, image_size=(32, 32), prototypes_per_class=3, similarity=s)
            for s in ("cosine", "l2_log")
        ),
        pool_with_shared_prototypes(),
    ],
)
def test_each_patch_is_the_farthest_of_its_classes_from_those_before(model):
    data, before, vectors = tiny_birds(), model.units(), model.prototypes.vectors.detach().clone()
    spread(data, model)
    samples = [data.dataset("projection")[row] for row in range(24)]
    with evaluation_mode(model), torch.no_grad():
        patches = [(p, int(s["label"])) for s in samples for p in model(s["image"][None]).latent[0].flatten(1).T]
    centre = torch.stack([patch for patch, _ in patches]).mean(dim=0)
    taken, after = [], model.units()

    def distance(patch, label):
        return min((patch - other).norm().item() for other in [o for o, of in taken if of[label]] or [centre])

    for unit, owner in enumerate(before.owner):
        if not owner.any():
            assert torch.equal(after.vectors[unit], vectors[unit])
            continue
        result, label = max(((p, k) for p, k in patches if owner[k]), key=lambda candidate: distance(*candidate))
        torch.testing.assert_close(after.vectors[unit], result, rtol=0, atol=1e-5)
        assert after.source.label[unit] == label
        taken.append((result, owner))


def by_loops(patches, labels):
    """Typicality of every patch, by its definition."""
    similar = torch.nn.functional.cosine_similarity
    typical = torch.zeros(patches.shape[:2])
    for i, label in enumerate(labels):
        same = [j for j in range(len(labels)) if labels[j] == label]
        others = [j for j in range(len(labels)) if labels[j] != label]
        number = min(len(same), len(others))
        others = [others[k * (len(others) - 1) // max(1, number - 1)] for k in range(number)]
        for cell, patch in enumerate(patches[i]):
            near = [similar(patch[None], patches[j]).max().item() for j in range(len(labels))]
            own = [near[j] for j in same if j != i]
            typical[i, cell] = sum(own) / max(1, len(own)) - sum(near[j] for j in others) / number
    return typical


@pytest.mark.parametrize("labels", [[0, 1, 0, 1], [0, 1, 1, 1, 1, 1, 2, 0], [3, 3, 3, 3, 1]])
def test_typicality_is_nearness_to_the_class_less_nearness_to_others(labels):
    patches = torch.randn(len(labels), 6, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(typicality(patches, torch.tensor(labels)), by_loops(patches, labels))


def test_a_single_class_has_no_typical_patches():
    with pytest.raises(ValueError, match="at least two classes"):
        typicality(torch.rand(3, 4, 2), torch.zeros(3, dtype=torch.int64))


@pytest.mark.parametrize(("per_class", "least"), [(2, 2), (5, 5)])  # a twentieth of 3 images of 16 cells are 2 patches
def test_typical_prototypes_are_different_patches_among_the_most_typical(per_class, least):
    data = tiny_birds()
    model = TINY_PROTOPNET(num_classes=8, image_size=(32, 32), prototypes_per_class=per_class, similarity="cosine")
    spread(data, model, typical_patches)
    batch = [data.dataset("projection")[row] for row in range(24)]
    batch.sort(key=lambda sample: (int(sample["label"]), int(sample["sample_key"])))  # others are spaced in this order
    with evaluation_mode(model), torch.no_grad():
        latent = model(torch.stack([sample["image"] for sample in batch])).latent.flatten(2).transpose(1, 2)
    labels, source = torch.tensor([int(sample["label"]) for sample in batch]), model.units().source
    typical = typicality(latent, labels)
    row = {int(sample["sample_key"]): index for index, sample in enumerate(batch)}
    for unit, key in enumerate(source.sample_key.tolist()):
        own = typical[labels == unit // per_class].flatten()
        assert max(least, int(TYPICAL * len(own))) == per_class
        value = typical[row[key], 4 * source.row[unit] + source.col[unit]]
        assert value >= own.topk(per_class).values[-1] - 1e-5
    places = zip(source.sample_key.tolist(), source.row.tolist(), source.col.tolist(), strict=True)
    assert len(set(places)) == 8 * per_class


def recurring_by_loops(latent, grid, most):
    """Pairs of image and cell, by the definition."""
    places = [divmod(cell, grid[1]) for cell in range(latent.shape[1])]
    cosine = torch.nn.functional.cosine_similarity

    def best(patch, image):
        similar = cosine(patch[None], latent[image]).tolist()
        peak = max(range(len(similar)), key=similar.__getitem__)
        away = [s for s, place in zip(similar, places, strict=True) if distance(place, places[peak]) > 1]
        return places[peak], similar[peak] - max(away)

    def distance(one, other):
        return max(abs(a - b) for a, b in zip(one, other, strict=True))

    found = {}
    for image, cells in enumerate(latent):
        for cell, patch in enumerate(cells):
            peaks, margins = zip(*(best(patch, other) for other in range(len(latent))), strict=True)
            found[image, cell] = sum(margins) - margins[image], peaks
    chosen = []
    for patch in sorted(found, key=lambda patch: -found[patch][0])[: max(most, len(found) // 10)]:
        shared = [sum(distance(*pair) <= 1 for pair in zip(found[patch][1], found[o][1], strict=True)) for o in chosen]
        if len(chosen) < most and not any(2 * count >= len(latent) for count in shared):
            chosen.append(patch)
    return [image * latent.shape[1] + cell for image, cell in chosen]


@pytest.mark.parametrize(("channels", "most"), [(12, 2), (12, 5), (4, 20)])  # of few channels, many are at one place
def test_recurring_patches_have_one_place_in_every_image(channels, most):
    latent = torch.randn(5, 6 * 7, channels, generator=torch.Generator().manual_seed(most))
    part = [3, 42 + 9, 84 + 30, 126 + 17, 168 + 40]  # at another place in each image
    latent.view(-1, channels)[part] = 9 * torch.arange(channels) + 0.1 * latent.view(-1, channels)[part]
    chosen = recurring(latent, (6, 7), most).tolist()
    assert chosen == recurring_by_loops(latent, (6, 7), most)
    assert channels < 12 or chosen[0] in part


def test_prototypes_without_a_recurring_patch_are_not_used():
    data = tiny_birds()
    model = TINY_PROTOPNET(num_classes=8, image_size=(32, 32), prototypes_per_class=6, similarity="cosine")
    report = spread(data, model, recurring_patches)
    units = model.units()
    assert report["units"] == units.active.sum() == units.source.found.sum()
    assert 8 <= report["units"] < 48
    assert (units.source.label[units.active] == units.owner[units.active].int().argmax(1)).all()


@pytest.mark.parametrize("data", [{}, {"task": "attributes"}])
def test_recurring_patches_need_classes_of_their_own(data):
    model = pool_with_shared_prototypes() if not data else TINY_PROTOPNET(num_classes=20, image_size=(32, 32))
    with pytest.raises(TypeError, match=r"prototypes of one class each|images of one label each"):
        spread(tiny_birds(**data), model, recurring_patches)


def test_images_of_several_labels_are_refused():
    with pytest.raises(TypeError, match=r"images of one label each .* but got SketchBirds"):
        spread(tiny_birds(task="attributes"), ProtoTree(num_classes=20, image_size=(32, 32), depth=5))
