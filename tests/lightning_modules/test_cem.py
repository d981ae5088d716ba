"""Concept embeddings: by the formula, image by image; what a correction changes; random corrections; few concepts."""

import pytest
import torch

from protometry.callbacks import Interpretability
from protometry.explanations import GradCAM
from protometry.lightning_modules import CEM
from tests.engine_runs import run_engine
from tests.lightning_modules.registry import tiny_birds, tiny_trainer

K, L, M = 3, 4, 2
close = torch.testing.assert_close


def made(**options):
    torch.manual_seed(0)
    sizes = {"num_classes": K, "num_concepts": L, "image_size": (32, 32), "embedding_size": M}
    return CEM(**(sizes | options)).eval()


def batch_of(images, concepts=L):
    generator = torch.Generator().manual_seed(1)
    return {
        "label": torch.arange(images) % K,
        "concepts": torch.rand(images, concepts, generator=generator) < 0.5,
        "sample_key": torch.randint(2**62, (images,), generator=generator),
    }


# -- decision ---------------------------------------------------------------------------------------------------------
@torch.no_grad()
def test_the_decision_by_the_formula():
    model = made()
    output = model(torch.rand(2, 3, 32, 32))
    embed, score, head = model.concepts.embed, model.concepts.score, model.linear
    weight, bias = embed.weight[:, :, 0, 0].view(L, 2, M, -1), embed.bias.view(L, 2, M)
    w = score.weight.view(2, M)
    for row in range(2):
        cells = output.latent[row].flatten(1).T
        logits = head.bias.clone()
        for concept in range(L):
            both = torch.zeros(2, M)  # for its presence, for its absence
            for cell in cells:
                value = weight[concept] @ cell + bias[concept]
                both += torch.where(value > 0, value, 0.01 * value) / len(cells)
            logit = (w * both).sum() + score.bias[0]
            p = logit.sigmoid()
            close(output.maps[row, concept].mean(), logit)
            close(output.scores[row, concept], p)
            share = head.weight[:, concept * M : (concept + 1) * M] @ (p * both[0] + (1 - p) * both[1])
            for label in range(K):
                close(model.contributions(output, torch.full((2,), label))[row, concept], share[label])
            logits += share
        close(output.logits[row], logits)


@torch.no_grad()
def test_a_concept_says_more_than_whether_it_is_there():
    """Two images with the same probability of the one concept: its embedding decides, and of the corrected one, too."""
    model = made(num_concepts=1, embedding_size=1, num_classes=2)
    model.linear.weight.copy_(torch.tensor([[1.0], [-1.0]]))
    model.linear.bias.zero_()
    scores = torch.tensor([[0.75], [0.75]])
    context = torch.tensor([[[[2.0], [-2.0]]], [[[-2.0], [2.0]]]])  # (B, L, 2, m)
    close(model.head(scores, context), torch.tensor([[1.0, -1.0], [-1.0, 1.0]]))  # .75 * 2 - .25 * 2
    none, all_ = torch.zeros(1, dtype=torch.bool), torch.ones(1, dtype=torch.bool)
    absent = model.intervene(scores, none, all_)
    close(model.head(absent, context), torch.tensor([[-2.0, 2.0], [2.0, -2.0]]))
    assert torch.equal(model.intervene(scores, none, none), scores)


def test_scores_alone_decide_nothing():
    with pytest.raises(TypeError, match="`context` to hold the embeddings of the images"):
        made().head(torch.rand(2, L))


def test_maps_have_no_weights_to_be_summed_by():
    """A concept adds to a class where its probability is 0, too: other explanations show parts."""
    model, parts = made(num_classes=8, num_concepts=20), ["funnybirds/sd", "funnybirds/accuracy"]
    summed = run_engine(Interpretability([*parts, "concepts/cem@1"]), model, tiny_birds())
    assert set(summed.metrics) == {"funnybirds/accuracy"}
    assert summed.skipped["concepts/cem@1"] == "weight: the model has no weight matrix"
    assert "maps have no weights" in summed.skipped["funnybirds/sd"]
    other = Interpretability(parts, explainer=GradCAM(), interface="attribution")
    assert set(run_engine(other, model, tiny_birds()).metrics) == {*parts}


# -- training ---------------------------------------------------------------------------------------------------------
def test_random_corrections(monkeypatch):
    model, batch = made(correct=0.25, num_concepts=20), batch_of(5000, 20)
    scores = torch.full((5000, 20), 0.4)
    corrected = model.randomly_corrected(scores, batch)
    drawn = corrected != 0.4
    assert torch.equal(corrected[drawn], batch["concepts"].float()[drawn])
    spread = 5 * (0.25 * 0.75 / 5000) ** 0.5
    assert (drawn.double().mean(0) - 0.25).abs().max() < spread
    assert ((drawn[:, 1:] & drawn[:, :-1]).double().mean(0) - 0.0625).abs().max() < spread  # each by itself
    order = torch.randperm(5000)[:7]
    part = {name: value[order] for name, value in batch.items()}
    assert torch.equal(model.randomly_corrected(scores[:7], part), corrected[order])
    model.label_noise = 0.25  # whose flips must not be the concepts that are corrected
    flipped = model.training_concepts(batch) != batch["concepts"]
    assert ((drawn & flipped).double().mean(0) - 0.0625).abs().max() < spread
    monkeypatch.setattr(CEM, "global_step", 7)
    later = model.randomly_corrected(scores, batch) != 0.4
    assert ((drawn & later).double().mean(0) - 0.0625).abs().max() < spread


@pytest.mark.parametrize("correct", [0.0, 0.5])
def test_class_loss_by_the_definition(correct):
    model, batch = made(correct=correct), batch_of(6)
    output = model(torch.rand(6, 3, 32, 32))
    scores = model.randomly_corrected(output.scores, batch)
    assert torch.equal(scores, output.scores) == (correct == 0)
    present, absent = output.extras["context"].unbind(2)
    mixed = scores[..., None] * present + (1 - scores[..., None]) * absent
    chances = (mixed.flatten(1) @ model.linear.weight.T + model.linear.bias).log_softmax(1)
    loss = model.loss_terms()["cross_entropy"](output, batch)
    close(loss, -chances[torch.arange(6), batch["label"]].mean())


def test_a_head_trained_alone_sees_embeddings():
    """And not kept scores, which would be all that a phase of the head reads in other models."""
    head = {"epochs": 2, "trainable": {"head": 1e-2}, "losses": {"cross_entropy": 1.0}, "bn": "eval"}
    model = made(num_classes=8, num_concepts=20, phases={"joint": {"epochs": 1}, "head": head})
    tiny_trainer(limit_val_batches=0).fit(model, datamodule=tiny_birds())
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_some_of_the_concepts():
    model = made(known=[3, 1])
    output, terms = model(torch.rand(2, 3, 32, 32)), model.loss_terms()
    assert output.extras["context"].shape == (2, 2, 2, M)
    assert model.units().concepts.tolist() == [3, 1]
    assert all(terms[name](output, batch_of(2)).isfinite() for name in ("cross_entropy", "concept_bce"))


# -- bad input --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"correct": 1.0}, r"`correct` to be at least 0 and below 1, but got 1.0"),
        ({"embedding_size": 0}, r"`embedding_size` to be at least 1, but got 0"),
        ({"num_concepts": 0}, r"`num_concepts` to be at least 1, .* CEM needs SketchBirds"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        made(**options)
