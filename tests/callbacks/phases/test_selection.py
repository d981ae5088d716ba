"""The action that selects features: from all training images, whatever the batches and the number of processes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from protometry.callbacks.phases.selection import select_features
from protometry.lightning_modules import QPM
from tests.lightning_modules.registry import tiny_birds

BUFFERS = ("selected", "selection", "assignment", "mean", "std")


def selected(**data):
    torch.manual_seed(0)
    model = QPM(num_features=12, features_per_class=3, num_classes=8, image_size=(32, 32))
    report = select_features(SimpleNamespace(datamodule=tiny_birds(train_size=23, **data)), model)
    return report, {name: getattr(model, name) for name in BUFFERS}, model


@pytest.fixture(scope="module")
def whole():
    return selected()


def test_mean_and_deviation_are_those_of_the_training_images(whole):
    report, buffers, model = whole
    data = tiny_birds(train_size=23)
    with torch.no_grad():
        batches = [model.eval()(batch["image"]) for batch in data.projection_dataloader()]
    pooled = torch.cat([output.extras["pooled"] for output in batches])[:, buffers["selection"]]
    torch.testing.assert_close(buffers["mean"], pooled.mean(0))
    torch.testing.assert_close(buffers["std"], pooled.std(0, correction=0))
    scores = torch.cat([output.scores for output in batches])[:, buffers["selection"]]
    torch.testing.assert_close(scores.std(0, correction=0), torch.ones(12))
    assert report["starts"] >= 1


def assert_same(found, whole):
    (report, buffers), (reference, expected, _) = found, whole
    assert report == pytest.approx(reference)
    for name in BUFFERS:
        torch.testing.assert_close(buffers[name], expected[name], rtol=1e-6, atol=1e-9)


def test_batches_do_not_matter(whole):
    assert_same(selected(batch_size=5)[:2], whole)
