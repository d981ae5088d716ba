"""Phases of the head alone: images are seen once, and weights are as in a run that sees them in every epoch."""

import pytest

from protometry.datamodules import SketchBirds
from protometry.lightning_modules import ProtoPNet
from tests.datamodules.toy_photos import toy
from tests.tiny_runs import differences, fit, state

HEAD = "{warm: {epochs: 1}, joint: null, last: {epochs: 3}, joint2: null, last2: null}"
IMAGES = 50  # four batches of 12 and one of 2


def run(folder, *more, model="ProtoPNet", phases=HEAD):
    fit(folder, f"--model.phases={phases}", f"--data.train_size={IMAGES}", *more, model=model)
    return state(folder)


@pytest.fixture
def trained_on(monkeypatch):
    """Images that a ProtoPNet has seen in the modes of training."""
    seen, forward = [], ProtoPNet.forward

    def counted(self, images):
        seen.extend(["seen"] * (len(images) if self.training else 0))
        return forward(self, images)

    monkeypatch.setattr(ProtoPNet, "forward", counted)
    return seen


def test_weights_are_those_of_a_run_that_keeps_nothing(tmp_path, monkeypatch, trained_on):
    kept = run(tmp_path / "kept", "--trainer.limit_val_batches=0")
    assert len(trained_on) == IMAGES + 1 + 60  # the warm epoch; the black image and five full batches
    monkeypatch.setattr(SketchBirds, "fixed_training_images", False)
    assert differences(kept, run(tmp_path / "shown", "--trainer.limit_val_batches=0")) == []
    assert len(trained_on) == IMAGES + 1 + 60 + 4 * IMAGES
    assert (tmp_path / "kept" / "metrics.csv").read_text() == (tmp_path / "shown" / "metrics.csv").read_text()


# models that lie outside the project


def test_what_is_drawn_for_every_epoch_is_not_kept(tmp_path):
    for augmentation in ("geometric_photometric", "geometric", "photometric"):
        assert not toy(tmp_path, augmentation=augmentation).fixed_training_images
    plain, birds = toy(tmp_path, augmentation="none"), SketchBirds("tiny")
    for data in (plain, birds):
        assert data.fixed_training_images
        data.configure_loaders(two_views=True)
        assert not data.fixed_training_images
