"""The decision threshold of multilabel models: by definition, once, and with its weights."""

from __future__ import annotations

import pytest
import torch
from lightning import Callback

from protometry.callbacks import Interpretability, RunCheckpoint, read_checkpoint
from protometry.callbacks.evaluation.threshold import fit_threshold, threshold_of
from protometry.datamodules.sketch_birds import SketchBirds
from protometry.lightning_modules import Classifier
from tests.engine_runs import run_engine
from tests.lightning_modules.registry import TINY_PROTOPNET, tiny_birds, tiny_trainer
from tests.rounding import terms_of, tolerance

OPTIONS = {"num_classes": 20, "image_size": (32, 32), "task": "multilabel"}


def make(kind=Classifier, **options):
    torch.manual_seed(0)
    return kind(**OPTIONS, **options).eval()


def birds(**options):
    return tiny_birds(task="attributes", **options)


@torch.no_grad()
def by_definition(model, datamodule) -> float:
    """Over single images, one by one: the middle of the mean logits of present and of absent labels."""
    logits = {True: [], False: []}
    model.eval()
    for sample in (datamodule.dataset("val")[index] for index in range(len(datamodule.dataset("val")))):
        for logit, present in zip(model(sample["image"][None]).logits[0].tolist(), sample["labels"], strict=True):
            logits[bool(present)].append(logit)
    return (sum(logits[True]) / len(logits[True]) + sum(logits[False]) / len(logits[False])) / 2


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_by_definition_whatever_the_batches(batch_size):
    """8 images in batches of 3 have a short last one: a mean of means per batch would be another number."""
    model, data = make(), birds(eval_batch_size=batch_size)
    fit_threshold(model, data)
    assert model.decision_threshold.item() == pytest.approx(by_definition(model, data), abs=tolerance(terms_of(model)))
    other = make()
    fit_threshold(other, birds())
    assert torch.equal(model.decision_threshold, other.decision_threshold)


def test_test_images_play_no_part(monkeypatch):
    data = birds()
    monkeypatch.setattr(data, "test_dataloader", lambda: pytest.fail("test data"))
    model = make().train()
    fit_threshold(model, data)
    assert model.training


@pytest.mark.parametrize("present", [True, False])
def test_labels_that_cannot_tell_are_refused(monkeypatch, present):
    data = birds()
    batches = [batch | {"labels": torch.full_like(batch["labels"], present)} for batch in data.val_dataloader()]
    monkeypatch.setattr(data, "val_dataloader", lambda: batches)
    with pytest.raises(ValueError, match="Expected the validation split to have present and absent labels"):
        fit_threshold(make(), data)


def test_one_label_has_no_threshold():
    assert threshold_of(Classifier(num_classes=8, image_size=(32, 32))) is None


class Later(Callback):
    """Remembers the threshold and what it should be, whenever a checkpoint has just been written."""

    def __init__(self, data):
        self.data, self.seen = data, []

    def on_train_epoch_end(self, trainer, pl_module):
        stored = float(pl_module.decision_threshold)
        self.seen.append((stored, by_definition(pl_module, self.data), trainer.callback_metrics.copy()))
        pl_module.train()


def assert_every_checkpoint_has_its_threshold(tmp_path, **options):
    data, model = birds(), make(TINY_PROTOPNET, phases={"warm": None, "joint": {"epochs": 1}, "settle": {"epochs": 1}})
    later = Later(data)
    trainer = tiny_trainer(Interpretability(), later, RunCheckpoint(), default_root_dir=tmp_path, **options)
    trainer.fit(model, datamodule=data)
    assert len(later.seen) == 3
    stored, expected, _ = zip(*later.seen, strict=True)
    assert stored == pytest.approx(expected, rel=tolerance(terms_of(model)))  # logits of tens
    assert len(set(stored)) == 3
    state = read_checkpoint(tmp_path / "checkpoints" / "last.ckpt")["state_dict"]
    assert state["decision_threshold"].item() == later.seen[-1][0]


def test_every_checkpoint_has_the_threshold_of_its_weights(tmp_path):
    """Those of epochs without validation, too."""
    assert_every_checkpoint_has_its_threshold(tmp_path, check_val_every_n_epoch=2)


def test_metrics_decide_by_the_threshold_in_validation_and_test():
    data, model = birds(val_size=16), make()
    fit_threshold(model, data)
    samples = [data.dataset("val")[index] for index in range(16)]
    with torch.no_grad():
        logits = torch.cat([model(sample["image"][None]).logits for sample in samples])
    labels = torch.stack([sample["labels"] for sample in samples])
    for threshold in (float(model.decision_threshold), -1e9):
        model.decision_threshold.fill_(threshold)
        data.configure_loaders(split="val")
        actual = run_engine(Interpretability(["general"]), model, data)
        predicted = logits > threshold
        hits, errors = (predicted & labels).sum(0), (predicted ^ labels).sum(0)
        expected = torch.nanmean(2 * hits.double() / (2 * hits + errors))
        assert actual.metrics["general/f1"]["value"] == pytest.approx(expected.item())
        assert actual.metrics["general/accuracy"]["value"] == (predicted == labels).all(1).double().mean()
        assert actual.protocol["decision_threshold"] == pytest.approx(threshold)
        assert {"general/balanced_accuracy", "general/top3_accuracy"} <= actual.skipped.keys()


class NoValidation(SketchBirds):
    has_validation = False


def test_without_validation_it_stays_zero_with_one_warning(recwarn):
    data = NoValidation("tiny", task="attributes", image_size=32, train_size=8, val_size=8, test_size=8, batch_size=8)
    model = make(phases={"train": {"epochs": 2}})
    tiny_trainer(Interpretability()).fit(model, datamodule=data)
    assert model.decision_threshold == 0
    warned = [warning for warning in recwarn if "no validation split to fit the decision" in str(warning.message)]
    assert len(warned) == 1
