"""A walk over a split: every image once, equal bits whatever the batches, and an unchanged model."""

import pytest
import torch

from protometry.callbacks.forward.walk import walk
from protometry.lightning_modules import Classifier
from tests.lightning_modules.registry import tiny_birds


def seen_by(model, batch_size):
    data = tiny_birds(batch_size=batch_size)
    outputs = {}
    for batch, seen in walk(model, data.projection_dataloader(), data.image_size):
        outputs |= dict(zip(batch["sample_id"], zip(seen.logits, batch["concepts"], strict=True), strict=True))
    return outputs


def test_equal_bits_for_every_batch_size():
    model = Classifier(num_classes=8, image_size=(32, 32)).train()
    first, second = seen_by(model, 24), seen_by(model, 5)
    assert model.training
    assert len(first) == 24
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name][0], second[name][0]) for name in first)
    assert {concepts.shape for _, concepts in first.values()} == {(tiny_birds().num_concepts,)}


def test_broken_outputs_are_named():
    model = Classifier(num_classes=8, image_size=(32, 32))
    torch.nn.init.constant_(model.linear.bias, torch.nan)
    with pytest.raises(ValueError, match=r"finite model outputs, but got NaN or infinity for the samples train"):
        seen_by(model, 8)
