"""The concept bottleneck: what its head learns from, noisy labels, corrections and percentiles, bad input."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.phases.percentiles import concept_percentiles
from protometry.datamodules.sample import ClassTables
from protometry.lightning_modules import Classifier, ConceptBottleneck
from protometry.lightning_modules.contract import Intervenable
from tests.lightning_modules.registry import tiny_birds, tiny_trainer

SIZE = (32, 32)
MODES = ("sketch_independent", "sketch_sequential", "sketch_joint")


def made(**options):
    torch.manual_seed(0)
    return ConceptBottleneck(**({"num_concepts": 20, "num_classes": 8, "image_size": SIZE} | options))


def training_batch(**options):
    return next(iter(tiny_birds(**options).train_dataloader()))


# -- what is learnt ---------------------------------------------------------------------------------------------------
def test_the_independent_head_learns_from_true_concepts():
    model, batch = made(), training_batch()
    model.linear.requires_grad_(True)
    output = model(batch["image"])
    loss = model.loss_terms()["truth_cross_entropy"](output, batch)
    logits = batch["concepts"].float() @ model.linear.weight.T + model.linear.bias
    torch.testing.assert_close(loss, -(batch["class_targets"] * logits.log_softmax(1)).sum(1).mean())
    loss.backward()
    assert [name for name, p in model.named_parameters() if p.grad is not None] == ["linear.weight", "linear.bias"]


def test_rare_concepts_weigh_as_they_are_rare():
    """n / n_l - 1, counted over the labels of the training images themselves."""
    data = tiny_birds(train_size=26)  # classes of 3 and 4 images
    model = made(concept_weights="imbalance", phases={"concepts": {"epochs": 1}, "labels": None})
    tiny_trainer(limit_train_batches=1, limit_val_batches=0).fit(model, datamodule=data)
    labels = torch.cat([batch["concepts"] for batch in data.projection_dataloader()]).double()
    expected = len(labels) / labels.sum(0) - 1
    torch.testing.assert_close(model.concept_weights.double(), expected, rtol=1e-5, atol=0)
    batch, weighted = training_batch(), model.loss_terms()["concept_bce"]
    logits = model(batch["image"]).extras["pooled"]
    each = torch.nn.functional.binary_cross_entropy_with_logits(logits, batch["concepts"].float(), reduction="none")
    torch.testing.assert_close(weighted(model(batch["image"]), batch), (each * expected).sum(1).mean().float())


def test_published_presets_weigh_concepts_and_stop_lowering_their_rate():
    """Koh et al. train with ``-weighted_loss multiple``; their rate falls to 1e-4 and no further."""
    weighed = {preset: made(preset=preset).concept_weights is not None for preset in ConceptBottleneck.presets}
    assert weighed == {preset: "_" not in preset for preset in weighed}
    model = made(preset="standard", concept_weights="equal")
    assert model.concept_weights is None
    optimizer, scheduler = model.plan.build(0, model.parameter_groups(), 1)
    rates = []
    for _ in range(1000):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates == pytest.approx([1e-2] * 21 + [1e-3] * 20 + [1e-4] * 959)


def test_some_of_the_concepts():
    """They keep their labels and their noise; units name them; weights are theirs."""
    options = {
        "label_noise": 0.3,
        "concept_weights": "imbalance",
        "phases": {"concepts": {"epochs": 1}, "labels": None},
    }
    every, some = (made(known=known, **options) for known in (None, [7, 2]))
    for model in (every, some):
        tiny_trainer(limit_train_batches=1, limit_val_batches=0).fit(model, datamodule=tiny_birds())
    batch = training_batch()
    assert torch.equal(some.training_concepts(batch), every.training_concepts(batch)[:, [7, 2]])
    assert torch.equal(some.concept_weights, every.concept_weights[[7, 2]])
    assert (some.units().concepts.tolist(), every.units().concepts.tolist()) == ([7, 2], list(range(20)))
    assert some(batch["image"]).scores.shape == (8, 2)


# -- noise ------------------------------------------------------------------------------------------------------------
def test_a_flip_depends_on_seed_sample_and_concept_alone():
    keys, labels = torch.randint(2**62, (5000,)), torch.rand(5000, 20) < 0.3
    flipped = {}
    for noise, seed in ((0.0, 0), (0.2, 0), (0.2, 1), (1.0, 0)):
        model = made(label_noise=noise, noise_seed=seed)
        noisy = model.training_concepts({"concepts": labels, "sample_key": keys}) != labels.float()
        order = torch.randperm(5000)
        part = {"concepts": ~labels[order[:7]], "sample_key": keys[order[:7]]}  # other images, labels and order
        assert torch.equal(model.training_concepts(part) != part["concepts"].float(), noisy[order[:7]])
        flipped[noise, seed] = noisy
    assert not flipped[0.0, 0].any()
    assert flipped[1.0, 0].all()
    first, other = flipped[0.2, 0], flipped[0.2, 1]
    spread = 5 * (0.2 * 0.8 / 5000) ** 0.5
    assert (first.double().mean(0) - 0.2).abs().max() < spread  # of every concept
    assert ((first & other).double().mean(0) - 0.04).abs().max() < spread  # independent of the other seed
    assert ((first[:, 1:] & first[:, :-1]).double().mean(0) - 0.04).abs().max() < spread  # and of its neighbour


# -- corrections ------------------------------------------------------------------------------------------------------
def test_corrected_concepts():
    scores, truth = torch.tensor([[0.3, -2.0, 5.0]]), torch.tensor([[True, False, True]])
    mask = torch.tensor([[True, True, False]])
    low, high = torch.tensor([-1.0, -2.5, -3.0]), torch.tensor([1.0, 2.0, 3.0])
    for preset, binary_by_default in (("sketch_independent", True), ("sketch_joint", False)):
        model = made(num_concepts=3, preset=preset)
        assert isinstance(model, Intervenable)
        none = torch.zeros_like(mask)
        assert torch.equal(model.intervene(scores, truth, mask, "binary"), torch.tensor([[1.0, 0.0, 5.0]]))
        with pytest.raises(ValueError, match=r"percentiles of the training logits to be stored before"):
            model.intervene(scores, truth, mask, "percentiles")
        model.load_percentiles(low, high)
        assert torch.equal(model.intervene(scores, truth, none), scores)
        ends = torch.tensor([[1.0, -2.5]])
        expected = torch.cat([ends.sigmoid() if binary_by_default else ends, scores[:, 2:]], 1)
        assert torch.equal(model.intervene(scores, truth, mask, "percentiles"), expected)
        own = model.intervene(scores, truth, mask, "binary" if binary_by_default else "percentiles")
        assert torch.equal(model.intervene(scores, truth, mask), own)


@pytest.mark.parametrize("preset", MODES)
def test_percentiles_belong_to_the_final_concepts(preset):
    data, model = tiny_birds(), made(preset=preset)
    model.plan = model.plan.override({phase.name: {"epochs": 1} for phase in model.plan.phases})
    tiny_trainer(limit_val_batches=0).fit(model, datamodule=data)
    with evaluation_mode(model), torch.no_grad():
        images = torch.stack([data.dataset("projection")[index]["image"] for index in range(24)])
        logits = model(images).extras["pooled"].sort(dim=0).values
    steps = [0.05 * 23, 0.95 * 23]  # positions among 24 ordered logits, between two of them
    expected = torch.stack([torch.lerp(logits[int(at)], logits[int(at) + 1], at % 1) for at in steps])
    torch.testing.assert_close(model.percentiles, expected, rtol=1e-4, atol=1e-5)


# -- bad input --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"num_concepts": 0},
            r"`num_concepts` to be at least 1, but got 0: the data have no concepts\. .* SketchBirds",
        ),
        ({"known": []}, r"`known` to hold different positions of the 20 concepts, from 0, but got \[\]"),
        ({"known": [1, 1]}, r"`known` to hold different positions .* got \[1, 1\]"),
        ({"known": [20]}, r"`known` to hold different positions .* got \[20\]"),
        ({"noise_seed": -1}, r"`noise_seed` to be at least 0 and below 2\^63, but got -1"),
        ({"label_noise": 1.2}, r"`label_noise` to be in \[0, 1\], but got 1.2"),
        ({"concept_weights": "rare"}, r"`concept_weights` to be one of \('equal', 'imbalance'\), but got 'rare'"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        made(**options)


def test_a_concept_table_that_does_not_fit():
    data = tiny_birds()
    with pytest.raises(ValueError, match=r"SketchBirds to describe 8 classes by 12 concepts, .* \(8, 20\)"):
        tiny_trainer().fit(made(num_concepts=12), datamodule=data)
    model = made()
    stranger = SimpleNamespace(tables=ClassTables(), capabilities=data.capabilities, loading=data.loading)
    model._trainer = SimpleNamespace(datamodule=stranger)
    model.setup("test")  # other data than the run's may have no concepts
    stranger.tables = replace(data.tables, class_concepts_binary=torch.ones(8, 9, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"the 20 concepts of the model, or none, but got 9"):
        model.setup("test")
    tables = replace(data.tables, class_concepts=None, class_concepts_binary=None)
    weighed = made(concept_weights="imbalance")
    weighed._trainer = SimpleNamespace(datamodule=SimpleNamespace(tables=tables, capabilities=data.capabilities))
    with pytest.raises(ValueError, match=r"how often the images of a class have each concept, .*concept_weights equal"):
        weighed.setup("fit")


def test_models_without_concepts_have_no_percentiles():
    with pytest.raises(TypeError, match=r"for the action 'concept_percentiles', but got Classifier"):
        concept_percentiles(SimpleNamespace(), Classifier(num_classes=8, image_size=SIZE))
