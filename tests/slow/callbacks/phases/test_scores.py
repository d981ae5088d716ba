"""Phases of the head alone: images are seen once, and weights are as in a run that sees them in every epoch."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from protometry.datamodules import SketchBirds
from protometry.lightning_modules import ProtoPNet, ProtoPool
from tests.callbacks.phases.test_scores import HEAD, IMAGES, run
from tests.tiny_runs import StopError, differences, stop_at


def test_a_resume_in_the_middle_of_the_phase_keeps_the_same_scores(tmp_path):
    straight = run(tmp_path / "straight")
    with pytest.raises(StopError):
        run(tmp_path / "cut", *stop_at(12))  # in the second of three epochs
    assert differences(run(tmp_path / "cut", "--ckpt_path", "last"), straight) == []


@pytest.mark.parametrize("more", [["--data.num_workers=1"], ["--model.task=multilabel", "--data.task=attributes"]])
def test_workers_and_several_labels(tmp_path, monkeypatch, more):
    kept = run(tmp_path / "kept", *more)
    monkeypatch.setattr(SketchBirds, "fixed_training_images", False)
    assert differences(kept, run(tmp_path / "shown", *more)) == []


def test_scores_of_slots(tmp_path, monkeypatch):
    """ProtoPool: focal similarity, prototypes without a slot."""
    phases, forward, seen = "{warm: null, joint: {epochs: 1}, last: {epochs: 3}}", ProtoPool.forward, []
    monkeypatch.setattr(ProtoPool, "forward", lambda self, x: (seen.append(self.training), forward(self, x))[1])
    kept = run(tmp_path / "kept", model="ProtoPool", phases=phases)
    assert sum(seen) == 5 + 1 + 5
    monkeypatch.setattr(SketchBirds, "fixed_training_images", False)
    assert differences(kept, run(tmp_path / "shown", model="ProtoPool", phases=phases)) == []


class Drawing(ProtoPNet):
    """Draws in its forward pass."""

    def __init__(self, **options):
        super().__init__(**options)
        self.addon = nn.Sequential(self.addon, nn.Dropout(0.1))


class Wide(ProtoPNet):
    """Its group ``head`` holds more than the head."""

    def __init__(self, **options):
        super().__init__(**options)
        self.gain = nn.Parameter(torch.ones(()))

    def embed(self, images):
        return super().embed(images) * self.gain

    def parameter_groups(self):
        groups = super().parameter_groups()
        return groups | {"head": [*groups["head"], self.gain]}


class Residual(ProtoPNet):
    """Decides by more than its scores."""

    def forward(self, images):
        output = super().forward(images)
        residual = output.latent.mean().expand_as(output.logits)
        return replace(output, logits=output.logits + residual, extras=output.extras | {"residual": residual})


@pytest.mark.parametrize("model", ["ProtoPNet", *(f"{__name__}.{m.__name__}" for m in (Drawing, Wide, Residual))])
def test_images_are_shown_where_more_than_the_head_is_trained_or_read_or_something_is_drawn(
    tmp_path, trained_on, model
):
    options = ["--model.prototypes_per_class=2", "--model.prototype_channels=16", "--model.preset=original"]
    phases = HEAD.replace("epochs: 3", "epochs: 3, losses: {cluster: 0.1}") if model == "ProtoPNet" else HEAD
    run(tmp_path / "run", *options, model=model, phases=phases)
    assert len(trained_on) == 4 * IMAGES + 2 * (model != "ProtoPNet")  # and a black image before two epochs


def test_images_are_shown_where_lightning_has_chosen_a_few_batches(tmp_path, trained_on):
    run(tmp_path / "run", "--trainer.overfit_batches=2", "--trainer.limit_val_batches=0")
    assert len(trained_on) == 4 * 2 * 12
