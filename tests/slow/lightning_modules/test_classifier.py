"""Classifiers of every family of backbones train."""

from __future__ import annotations

import pytest
import torch

from protometry.lightning_modules import Classifier
from tests.lightning_modules.registry import tiny_birds, tiny_trainer
from tests.lightning_modules.test_classifier import SIZE, K


@pytest.mark.parametrize(
    ("backbone", "preset"),
    [
        ("vgg19", "sgd"),
        ("densenet169", "sgd"),
        ("bagnet9", "sgd"),
        ("convnext_tiny", "sgd"),
        ("convnext_tiny", "sketch"),
    ],
)
def test_backbones_train(backbone, preset):
    """One batch moves backbone and head, and leaves them finite."""
    torch.manual_seed(0)
    model = Classifier(
        num_classes=K, image_size=SIZE, backbone={"name": backbone}, preset=preset, phases={"train": {"epochs": 1}}
    )
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    tiny_trainer(limit_train_batches=1, limit_val_batches=0).fit(model, datamodule=tiny_birds())
    after = dict(model.named_parameters())
    assert all(value.isfinite().all() for value in after.values())
    for group in ("backbone.", "linear."):
        moved = [not torch.equal(before[name], value) for name, value in after.items() if name.startswith(group)]
        assert sum(moved) > len(moved) / 2, group
