"""The benchmark of training runs: what it counts is right, and its table is printed."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "training.py"
PIXELS = torch.arange(4 * 32 * 32 * 3).view(4, 32, 32, 3).byte()


@pytest.fixture(scope="module")
def training():
    sys.path.insert(0, str(SCRIPT.parent))  # as for a script
    spec = importlib.util.spec_from_file_location("training_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.remove(str(SCRIPT.parent))
    return module


@pytest.mark.parametrize(("name", "passes"), [("Classifier", 1.0), ("PIPNet", 2.0), ("ConceptBottleneck", 1.0)])
def test_images_through_the_backbone_are_counted(training, name, passes):
    model = training.make_model(name, "sketch", 32, 4)
    assert len(model.plan.phases) == 1
    assert "backbone" in model.plan.phases[0].trainable
    data = training.OneBatch(PIXELS, 4, steps=3)
    assert training.passes_of(model, data, "cpu") == passes


def test_both_sides_train(training):
    model = training.make_model("ProtoPNet", "sketch", 32, 4)
    bare = training.Bare(model, "sketch", 4)
    data = training.OneBatch(PIXELS, 4, steps=3)
    for side, train in (
        (bare, lambda: training.train_bare(bare, model, data, "cpu")),
        (model, lambda: training.train_model(model, data, "cpu")),
    ):
        before = side.backbone.net.block1[0].weight.detach().clone()
        assert train() > 0
        assert not torch.equal(side.backbone.net.block1[0].weight, before)
