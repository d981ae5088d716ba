"""Prototypes that start as random patches: real patches with their sources, drawn alike everywhere."""

import pytest
import torch

from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.phases.starting_patches import sample_patches, spread_patches
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


def spread(data, model):
    trainer = tiny_trainer()
    trainer.datamodule = data
    return spread_patches(trainer, model)


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


def test_images_of_several_labels_are_refused():
    with pytest.raises(TypeError, match=r"images of one label each .* but got SketchBirds"):
        spread(tiny_birds(task="attributes"), ProtoTree(num_classes=20, image_size=(32, 32), depth=5))
