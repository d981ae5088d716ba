"""Prototypes that start as random patches: real patches with their sources, drawn alike everywhere."""

import pytest
import torch

from callbacks.evaluation_mode import evaluation_mode
from callbacks.phases.starting_patches import sample_patches
from lightning_modules import Classifier, ProtoTree
from tests.lightning_modules.registry import tiny_birds, tiny_trainer
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


def test_models_without_prototypes_are_refused():
    trainer = tiny_trainer()
    with pytest.raises(TypeError, match=r"with prototypes for the action 'sample_patches', but got Classifier"):
        sample_patches(trainer, Classifier(num_classes=8, image_size=(32, 32)))
