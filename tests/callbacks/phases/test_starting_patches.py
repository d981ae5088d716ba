"""Prototypes that start as random patches: real patches with their sources, drawn alike everywhere."""

import pytest
import torch

from callbacks.forward.evaluation_mode import evaluation_mode
from callbacks.phases.starting_patches import sample_patches, spread_patches
from lightning_modules import Classifier, ProtoTree
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


@pytest.mark.parametrize("similarity", ["cosine", "l2_log"])
def test_each_patch_is_the_farthest_of_its_class_from_those_before(similarity):
    data = tiny_birds()
    model = TINY_PROTOPNET(num_classes=8, image_size=(32, 32), prototypes_per_class=3, similarity=similarity)
    spread(data, model)
    samples = [data.dataset("projection")[row] for row in range(24)]
    with evaluation_mode(model), torch.no_grad():
        patches = torch.stack([model(sample["image"][None]).latent[0].flatten(1).T for sample in samples])
    labels = torch.stack([sample["label"] for sample in samples])
    centre = patches.mean(dim=(0, 1))
    for label in range(8):
        own = patches[labels == label].flatten(0, 1)
        taken = [max(own, key=lambda point: (point - centre).norm().item())]
        for _ in range(2):
            taken.append(max(own, key=lambda point: min((point - other).norm().item() for other in taken)))
        vectors = model.prototypes.vectors[label * 3 : label * 3 + 3]
        torch.testing.assert_close(vectors, torch.stack(taken), rtol=0, atol=1e-5)
    assert model.units().source.label.tolist() == [label for label in range(8) for _ in range(3)]


def test_models_that_cannot_start_so_are_refused():
    classifier = Classifier(num_classes=8, image_size=(32, 32))
    for action in (sample_patches, spread_patches):
        with pytest.raises(TypeError, match=r"with prototypes for the action '\w+', but got Classifier"):
            action(tiny_trainer(), classifier)
    with pytest.raises(TypeError, match=r"of one class each and images of one label each .* ProtoTree"):
        spread(tiny_birds(), ProtoTree(num_classes=8, image_size=(32, 32), depth=3))
