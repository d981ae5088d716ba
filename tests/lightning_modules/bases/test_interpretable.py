"""The base of all models: the task, its loss and its decision, and class weights."""

from __future__ import annotations

import pytest
import torch

from protometry.lightning_modules import Classifier, ProtoPNet
from protometry.lightning_modules.bases.losses import cross_entropy, multilabel_margin
from protometry.run_folder.checkpoint_file import read_checkpoint
from tests.lightning_modules.registry import tiny_birds, tiny_trainer

SIZE = (32, 32)
SEVERAL = {"task": "multilabel", "num_classes": 20}


def make(kind=Classifier, **options):
    torch.manual_seed(0)
    return kind(**({"num_classes": 8, "image_size": SIZE} | options))


# -- task ------------------------------------------------------------------------------------------------------------
def test_the_plan_follows_the_task():
    changes = {"joint": {"losses": {"cross_entropy": 3.0}}, "last": {"epochs": 7}}
    plain, several = (make(ProtoPNet, phases=changes, **more).plan for more in ({}, SEVERAL))
    assert [phase.name for phase in several.phases] == [phase.name for phase in plain.phases]
    for one, other in zip(plain.phases, several.phases, strict=True):
        assert "cross_entropy" not in other.losses
        assert other.losses["multilabel_margin"] == one.losses["cross_entropy"]
        assert list(other.losses.values()) == list(one.losses.values())
        assert (other.epochs, other.trainable, other.on_enter) == (one.epochs, one.trainable, one.on_enter)
    assert several.phases[1].losses["multilabel_margin"] == 3.0
    assert ProtoPNet.presets["sketch"].phases[1].losses["cross_entropy"] == 1.0


def test_what_is_learnt_and_how_it_is_decided():
    batch = {"label": torch.tensor([0, 1, 1]), "labels": torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1]]).bool()}
    logits = torch.tensor([[2.0, -1.0, 1.5], [0.9, 0.0, -3.0], [4.0, 2.0, 1.0]])
    one, several = make(num_classes=3), make(num_classes=3, task="multilabel")
    assert torch.equal(one.targets(batch), batch["label"])
    assert torch.equal(several.targets(batch), batch["labels"])
    assert one.is_correct(logits, batch["label"]).tolist() == [True, False, False]
    assert several.is_correct(logits, batch["labels"]).tolist() == [True, False, True]  # above 0
    several.decision_threshold.fill_(1.0)
    assert several.is_correct(logits, batch["labels"]).tolist() == [True, True, False]  # above 1, not at 1
    torch.testing.assert_close(one.probabilities(logits).sum(1), torch.ones(3))
    torch.testing.assert_close(several.probabilities(logits), torch.sigmoid(logits))


def test_loss_terms_of_the_task():
    birds = next(iter(tiny_birds(task="attributes").train_dataloader()))
    model = make(**SEVERAL)
    output = model(birds["image"])
    value = model.loss_terms()["multilabel_margin"](output, birds)
    torch.testing.assert_close(value, multilabel_margin(output.logits, birds["labels"]))
    assert value > 0


def test_predictions_of_loaders_with_and_without_labels():
    model, images = make().eval(), torch.rand(2, 3, *SIZE)
    alone, pair = model.predict_step([images], 0), model.predict_step([images, torch.tensor([3, 5])], 0)
    assert (alone.keys() ^ pair.keys(), pair["label"].tolist()) == ({"label"}, [3, 5])


def run(model, datamodule, how):
    getattr(tiny_trainer(limit_train_batches=1), how)(model, datamodule=datamodule)


@pytest.mark.parametrize("how", ["fit", "validate", "test"])
def test_data_of_the_other_task_is_refused_before_work_starts(how, monkeypatch):
    monkeypatch.setattr(Classifier, "forward", lambda self, images: pytest.fail("no work may have started"))
    message = r"Expected multiclass data, because Classifier has `task: multiclass`, but SketchBirds is multilabel. "
    message += r"Pass `--model.task multilabel`, or .* with `--data.task`"
    with pytest.raises(ValueError, match=message):
        run(make(num_classes=20), tiny_birds(task="attributes"), how)
    message = r"Expected multilabel data, because Classifier has `task: multilabel`, but SketchBirds is multiclass. "
    message += r"Pass `--model.task multiclass`, or .* with `--data.task`"
    with pytest.raises(ValueError, match=message):
        run(make(task="multilabel"), tiny_birds(), how)


@pytest.mark.parametrize(("options", "message"), [
    ({"num_classes": 1}, "`num_classes` to be at least 2, but got 1"),
    ({"num_concepts": -1}, "`num_concepts` to be at least 0, but got -1"),
    ({"preset": "sketsch"}, r"`preset` to be one of \[.*'sketch'.*\], but got 'sketsch'"),
    ({"epoch_scale": 0.0}, "Expected argument `epoch_scale` to be above 0 and finite, but got 0.0"),
    ({"epoch_scale": -1.0}, "Expected argument `epoch_scale` to be above 0 and finite, but got -1.0"),
    ({"epoch_scale": float("nan")}, "Expected argument `epoch_scale` to be above 0 and finite, but got nan"),
    ({"image_size": 64}, r"Expected argument `image_size` to be the height and the width in pixels, but got 64"),
    ({"image_size": (4, 4)}, r"Expected argument `image_size` to leave at least one latent cell, but got \(4, 4\)"),
    ({"task": "multi"}, r"`task` of \w+ to be one of \('multiclass', 'multilabel'\), but got 'multi'"),
    ({"task": "multilabel", "class_weights": True}, "Expected argument `class_weights` to be false with .*multilabel"),
])  # fmt: skip
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


# -- class weights ---------------------------------------------------------------------------------------------------
def unbalanced(**options):
    """12 images of 8 classes: two of classes 0 to 3, one of the others; hard targets."""
    return tiny_birds(train_size=12, batch_size=12, part_removal=0.0, **options)


WEIGHTS = [0.75] * 4 + [1.5] * 4  # 12 / (8 · 2) and 12 / (8 · 1)


def trained(datamodule=None) -> Classifier:
    model = make(class_weights=True, phases={"train": {"epochs": 1}})
    tiny_trainer(limit_val_batches=0).fit(model, datamodule=datamodule or unbalanced())
    return model


def test_class_weights_come_from_the_training_split():
    model = trained()
    assert model.class_weights.tolist() == WEIGHTS
    logits, batch = torch.randn(3, 8), {"label": torch.tensor([0, 5, 5])}
    value = model.loss_terms()["cross_entropy"](type("Output", (), {"logits": logits}), batch)
    torch.testing.assert_close(value, cross_entropy(logits, batch["label"], None, torch.tensor(WEIGHTS)))
    assert abs(value - cross_entropy(logits, batch["label"])) > 0.01


def test_class_weights_are_saved_and_evaluation_leaves_them_alone():
    model = trained()
    again = Classifier(**model.hparams)
    assert again.class_weights.tolist() == [1.0] * 8
    again.load_state_dict(model.state_dict())
    tiny_trainer().test(again, datamodule=tiny_birds(), verbose=False)  # balanced
    assert again.class_weights.tolist() == WEIGHTS


def test_without_class_weights_there_is_no_buffer():
    assert not {"class_weights", "decision_threshold"} & set(make().state_dict())


@pytest.mark.parametrize("weights", [None, torch.ones(3), torch.tensor([torch.inf] * 8)])
def test_class_weights_must_be_known(weights):
    birds = unbalanced()
    birds.__class__ = type("Birds", (type(birds),), {"class_weights": weights})
    with pytest.raises(ValueError, match=r"Expected Birds.class_weights to hold 8 finite numbers, but got .*to false"):
        trained(birds)


def test_checkpoints_keep_task_and_threshold(tmp_path):
    model = make(**SEVERAL, phases={"train": {"epochs": 1}})
    trainer = tiny_trainer(default_root_dir=tmp_path, limit_val_batches=0)
    trainer.fit(model, datamodule=tiny_birds(task="attributes"))
    model.decision_threshold.fill_(0.25)
    trainer.save_checkpoint(tmp_path / "x.ckpt")
    stored = read_checkpoint(tmp_path / "x.ckpt")
    again = Classifier(**{k: v for k, v in stored["hyper_parameters"].items() if not k.startswith("_")})
    again.load_state_dict(stored["state_dict"])
    assert (again.task, again.decision_threshold.item()) == ("multilabel", 0.25)
