"""Intervention-aware embeddings: losses by the formula, image by image; what the policy draws, learns and asks for."""

import math
from itertools import pairwise

import pytest
import torch

from protometry.lightning_modules import CEM, IntCEM
from protometry.lightning_modules.contract import ModelOutput

K, L, M, B = 3, 4, 2, 6
close = torch.testing.assert_close


def made(**options):
    torch.manual_seed(0)
    sizes = {"num_classes": K, "num_concepts": L, "image_size": (32, 32), "embedding_size": M}
    return IntCEM(**(sizes | options))


def outputs(images=B, model=None):
    """Random embeddings and scores, with labels and concepts."""
    generator = torch.Generator().manual_seed(1)
    scores, context = torch.rand(images, L, generator=generator), torch.randn(images, L, 2, M, generator=generator)
    batch = {
        "label": torch.arange(images) % K,
        "concepts": torch.rand(images, L, generator=generator) < 0.5,
        "sample_key": torch.randint(2**62, (images,), generator=generator),
    }
    return ModelOutput(torch.zeros(images, K), scores, torch.zeros(images, L, 1, 1), None, {"context": context}), batch


def at_step(monkeypatch, step):
    monkeypatch.setattr(IntCEM, "global_step", step)


# -- losses -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("step", "correct"), [(0, 0.0), (400, 0.25), (401, 0.9)])
def test_losses_by_the_formula(monkeypatch, step, correct):
    """The policy draws; what it read, which concepts it should have drawn, and both losses by loops."""
    at_step(monkeypatch, step)
    model, (output, batch) = made(correct=correct, discount=1.5), outputs()
    corrected, preferences = model.trajectory(output, batch)
    length = len(preferences)
    ends, imitation = [], []
    for image in range(B):
        context, truth, label = output.extras["context"][image], batch["concepts"][image], batch["label"][image]

        def chances(mask, context=context, truth=truth, image=image):
            p = torch.tensor([float(truth[c]) if mask[c] else float(output.scores[image, c]) for c in range(L)])
            mixed = torch.stack([p[c] * context[c, 0] + (1 - p[c]) * context[c, 1] for c in range(L)])
            return mixed.flatten(), model.linear(mixed.flatten()).log_softmax(0)

        masks = [corrected[t, image].bool().tolist() for t in range(length + 1)]
        assert masks[0] == model.randomly_chosen(batch)[image].tolist()
        for t, (before, after) in enumerate(pairwise(masks)):
            free = [concept for concept in range(L) if not before[concept]]
            drawn = [concept for concept in range(L) if after[concept] and not before[concept]]
            assert len(drawn) == min(1, len(free))
            assert all(after[concept] for concept in range(L) if before[concept])
            if not free:
                imitation.append(torch.zeros(()))
                continue
            logits = model.policy(torch.cat([chances(before)[0], torch.tensor(before).float()])[None])[0]
            close(preferences[t, image, free], logits[free])
            gain = {c: chances([before[o] or o == c for o in range(L)])[1][label].item() for c in free}
            imitation.append(-logits[free].log_softmax(0)[free.index(max(gain, key=gain.get))])
        ends.append([-chances(masks[t])[1][label] for t in (0, -1)])
    first, last = (torch.stack(values).mean() for values in zip(*ends, strict=True))
    terms = model.loss_terms()
    close(terms["cross_entropy"](output, batch), (first + 1.5**length * last) / (1 + 1.5**length))
    close(terms["rollout"](output, batch), torch.stack(imitation).mean())


def test_an_image_does_not_depend_on_its_batch(monkeypatch):
    at_step(monkeypatch, 400)
    model, (output, batch) = made(), outputs()
    for term in (model.loss_terms()[name] for name in ("cross_entropy", "rollout")):
        alone = []
        for row in range(B):
            one = slice(row, row + 1)
            single = ModelOutput(*(field[one] for field in (output.logits, output.scores, output.maps)), None)
            single.extras["context"] = output.extras["context"][one]
            alone.append(term(single, {name: value[one] for name, value in batch.items()}))
        close(torch.stack(alone).mean(), term(output, batch))


def test_the_policy_learns_from_both_losses(monkeypatch):
    """Through the draws, too: the class loss alone moves it."""
    at_step(monkeypatch, 400)
    model, (output, batch) = made(), outputs()
    for name in ("cross_entropy", "rollout"):
        model.zero_grad()
        model.loss_terms()[name](output, batch).backward()
        assert all(parameter.grad.abs().sum() > 0 for parameter in model.policy.parameters()), name


# -- draws ------------------------------------------------------------------------------------------------------------
def test_concepts_are_drawn_by_their_preference():
    """Images alike: the shares of the first draw are the softmax, within five standard errors."""
    model, count = made(correct=0.0), 20_000
    output, batch = outputs(1)
    many = ModelOutput(output.logits, output.scores.expand(count, -1), output.maps, None)
    many.extras["context"] = output.extras["context"].expand(count, -1, -1, -1)
    keys = {"sample_key": torch.arange(count), "concepts": batch["concepts"].expand(count, -1)}
    model.policy[4].bias.data = torch.tensor([1.0, 0.0, -1.0, 2.0])
    corrected, preferences = model.trajectory(many, keys)
    expected = preferences[0, 0].softmax(0).double()
    assert ((corrected[1].double().mean(0) - expected).abs() < 5 * (expected * (1 - expected) / count).sqrt()).all()


def test_lengths(monkeypatch):
    """1 or 2 at the start, up to ``horizon`` later, and never more than there are concepts."""
    for step, concepts, longest in ((0, 9, 2), (100, 9, 3), (200, 9, 5), (1000, 9, 6), (10**7, 9, 6), (1000, 4, 4)):
        model, lengths = made(num_concepts=concepts), []
        for later in range(40):
            at_step(monkeypatch, step + later * (step >= 1000))
            model.noise_seed = later
            lengths.append(model._length())
        assert {*lengths} == {*range(1, longest + 1)}, (step, concepts)
    at_step(monkeypatch, 0)
    assert made(horizon=1)._length() == 1


# -- what it learns ---------------------------------------------------------------------------------------------------
def test_a_policy_learns_which_concept_helps():
    """Only concept 2 says the class, so that its correction helps most; once it is corrected, none does."""
    model, (output, batch) = made(correct=0.0, num_classes=2, horizon=1), outputs(64)
    output.extras["context"][:] = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    with torch.no_grad():
        model.linear.weight.zero_()
        model.linear.weight[0, 2 * M : 3 * M], model.linear.weight[1, 2 * M : 3 * M] = -1, 1
    batch["label"] = batch["concepts"][:, 2].long()
    assert model.most_helpful(output, batch, torch.zeros(1, 64, L)).unique().tolist() == [2]
    assert model.most_helpful(output, batch, torch.eye(L)[2].expand(1, 64, L)).unique().tolist() == [0]  # a tie
    optimizer = torch.optim.Adam(model.policy.parameters(), 1e-2)
    for _ in range(30):
        loss = model.loss_terms()["rollout"](output, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    order = model.order_of_corrections(output.scores, batch["concepts"], output.extras["context"])
    assert (order[:, 0] == 2).all()
    assert (order.sort(dim=1).values == torch.arange(L)).all()


def test_the_order_depends_on_what_the_policy_was_told():
    """It asks for concept 0 first; a policy that reads only c_0 then asks for 1 if it is there and for 3 if not."""
    model, (output, _) = made(embedding_size=1, num_concepts=L), outputs(2)
    context = torch.tensor([1.0, -1.0]).view(1, 1, 2, 1).expand(2, L, 2, 1)
    for layer in model.policy[::2]:
        torch.nn.init.zeros_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
    with torch.no_grad():
        for layer in model.policy[::2]:
            layer.weight[0, 0] = 1
        model.policy[4].weight[:, 0] = torch.tensor([0.0, 1.0, 0.0, -100.0])  # LeakyReLU leaves a 100th of a 100th
        model.policy[4].bias[0] = 1000
    order = model.order_of_corrections(output.scores, torch.tensor([[True], [False]]).expand(2, L), context)
    assert order[:, :2].tolist() == [[0, 1], [0, 3]]


# -- schedule and bad input -------------------------------------------------------------------------------------------
def test_schedules_are_those_of_a_cem_and_train_the_policy_too():
    for name, weight in {"original": 5.0, "sketch": 0.1, "pretrained": 0.1}.items():
        (phase,), (plain,) = IntCEM.presets[name].phases, CEM.presets[name].phases
        assert phase.losses == plain.losses | {"rollout": weight}
        assert phase.trainable == plain.trainable | {"policy": plain.trainable["concepts"]}
    assert IntCEM.presets["original"].phases[0].weight_decay["policy"] == 4e-6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0}, r"`horizon` to be at least 1, but got 0"),
        ({"discount": 0.0}, r"`discount` to be above 0 and finite, but got 0.0"),
        ({"discount": math.inf}, r"`discount` to be above 0 and finite, but got inf"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        made(**options)
