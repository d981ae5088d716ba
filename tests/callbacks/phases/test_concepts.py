"""The action that embeds all training images and fits a bank of concepts to them."""

import csv
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from protometry.callbacks.phases.concepts import embed_training_images, fit_concepts
from protometry.lightning_modules import PosthocCBM
from tests.lightning_modules.registry import tiny_birds, tiny_trainer
from tests.tiny_runs import differences


def make():
    torch.manual_seed(0)
    return PosthocCBM(num_concepts=20, num_classes=8, image_size=(32, 32))


def prepared(folder, model=None, **data):
    """Trainer, model and data as an action finds them."""
    birds = tiny_birds(**data)
    strategy = SimpleNamespace(broadcast=lambda value: value)
    trainer = SimpleNamespace(datamodule=birds, default_root_dir=folder, strategy=strategy, is_global_zero=True)
    return trainer, model or make(), birds


def test_embeddings_are_those_of_the_evaluation_transform(tmp_path):
    _, model, birds = prepared(tmp_path)
    embeddings, concepts, targets = embed_training_images(model, birds)
    assert embeddings.shape == (24, 128)
    dataset, model = birds.dataset("projection"), model.eval()
    for row in (0, 5, 23):
        sample = dataset[row]
        with torch.no_grad():
            expected = model.backbone(sample["image"][None]).mean((2, 3))[0]
        torch.testing.assert_close(embeddings[row], expected, rtol=1e-4, atol=1e-5)
        assert torch.equal(concepts[row], sample["concepts"])
        assert torch.equal(targets[row], sample["class_targets"])


def test_the_bank_does_not_depend_on_the_batch_size(tmp_path):
    trainer, first, _ = prepared(tmp_path, batch_size=8)
    report = fit_concepts(trainer, first)
    trainer, again, _ = prepared(tmp_path, batch_size=7)
    assert fit_concepts(trainer, again) == report
    assert torch.equal(again.vectors, first.vectors)
    assert torch.equal(again.linear.weight, first.linear.weight)


def test_the_fate_of_every_concept_is_reported(tmp_path, caplog):
    trainer, model, birds = prepared(tmp_path, part_removal=0.0, train_size=8)
    dataset = birds.dataset("projection")
    concepts = torch.stack([dataset[row]["concepts"] for row in range(8)])
    names = birds.tables.concept_names
    names = ["renamed", *names[1:]]
    birds.__dict__["tables"] = replace(birds.tables, concept_names=names)
    absent = {name for name, column in zip(names, concepts.T, strict=True) if column.all() or not column.any()}
    with caplog.at_level("INFO"):
        report = fit_concepts(trainer, model)
    assert report["concepts"] == 20 - len(absent)
    assert report["fewer_examples"] == report["concepts"]  # 8 images, 100 + 100 requested
    with (tmp_path / "concepts.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["concept"] for row in rows] == names
    assert {row["concept"] for row in rows if row["fitted"] == "False"} == absent
    assert [int(row["train_positives"]) for row in rows] == concepts.sum(0).tolist()


def test_a_refusal_of_the_first_process_reaches_all(tmp_path):
    """What rank 0 raises is broadcast and raised."""
    trainer, model, _ = prepared(tmp_path)
    said = []
    trainer.strategy.broadcast = lambda value: said.append(value) or value
    model.fit_concepts = lambda *args: (_ for _ in ()).throw(ValueError("too few"))
    with pytest.raises(ValueError, match="too few"):
        fit_concepts(trainer, model)
    assert isinstance(said[-1], ValueError)


def test_the_epoch_after_the_fit_changes_nothing_and_the_residual_only_itself(tmp_path):
    seen = {}
    for preset in ("plain", "hybrid"):
        torch.manual_seed(0)
        model = PosthocCBM(num_concepts=20, num_classes=8, image_size=(32, 32), preset=preset, epoch_scale=0.1)
        trainer = tiny_trainer(default_root_dir=tmp_path / preset)
        trainer.fit(model, datamodule=tiny_birds())
        seen[preset] = {name: value.clone() for name, value in model.state_dict().items()}
    assert differences({name: seen["hybrid"][name] for name in seen["plain"]}, seen["plain"]) == []
    assert seen["hybrid"]["residual.weight"].any()
