"""The softmax head: its optimality conditions by hand, and the solution of scikit-learn."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn import functional as F

from lightning_modules.heads import sparse_head
from lightning_modules.heads.sparse_head import Problem, fit_sparse_head

K, U = 4, 6


@pytest.fixture
def data():
    """80 images of 4 classes; one score is constant."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(80) % K
    scores = 3 + torch.randn(K, U, generator=generator)[labels] + torch.randn(80, U, generator=generator)
    scores[:, 5] = 7.0
    return scores, labels


@pytest.mark.parametrize(("penalty", "l1_ratio"), [(0.02, 0.99), (0.05, 0.5), (0.02, 0.0)])
def test_against_scikit_learn(data, penalty, l1_ratio):
    scores, labels = data
    problem = Problem(scores, labels, K, penalty, l1_ratio)
    head = fit_sparse_head(problem)
    saga = LogisticRegression(
        penalty="elasticnet", solver="saga", C=1 / (80 * penalty), l1_ratio=l1_ratio, tol=1e-8, max_iter=20000
    )
    saga.fit(problem.scores.numpy(), labels.numpy())
    torch.testing.assert_close(head.weight, torch.tensor(saga.coef_), rtol=0, atol=1e-4)
    weight, bias = problem.on_raw_scores(head.weight, head.bias)
    logits = scores.double() @ weight.T + bias
    expected = torch.tensor(saga.predict_proba(problem.scores.numpy()))
    torch.testing.assert_close(logits.softmax(1), expected, rtol=0, atol=1e-4)
    assert (weight[:, 5] == 0).all()
    if l1_ratio:
        assert torch.equal(head.weight == 0, torch.tensor(saga.coef_).abs() < 1e-6)


def test_optimality_conditions_by_their_definition(data):
    """The gradient of the cross-entropy by autograd, the rest by hand; they hold at the solution and not near it."""
    scores, labels = data
    penalty, alpha = 0.02, 0.9
    problem = Problem(scores, labels, K, penalty, alpha)
    head = fit_sparse_head(problem)
    x = (scores - scores.mean(0)) / scores.std(0, correction=0).clamp(min=1e-9)
    for shift in (0.0, 0.01):
        weight = (head.weight + shift * (head.weight != 0)).requires_grad_()
        bias = head.bias.clone().requires_grad_()
        (F.cross_entropy(x.double() @ weight.T + bias, labels)
         + penalty * (1 - alpha) / 2 * weight.square().sum()).backward()  # fmt: skip
        used = weight != 0
        worst = max(
            (weight.grad[~used].abs() - penalty * alpha).max().clamp(min=0).item(),
            (weight.grad[used] + penalty * alpha * weight[used].sign()).abs().max().item(),
            bias.grad.abs().max().item(),
        )
        assert problem.violation(weight.detach(), bias.detach()) == pytest.approx(worst, abs=1e-6)
        assert (worst < 1e-5) == (shift == 0)
    assert head.violation < 1e-6
    assert 0 < (head.weight == 0).double().mean() < 1


def test_above_the_largest_gradient_no_score_is_read(data):
    scores, labels = data
    x = Problem(scores, labels, K, 1.0).scores
    largest = (x.T @ (F.one_hot(labels).double() - 1 / K)).abs().max().item() / len(x)  # λ_max α
    none = fit_sparse_head(Problem(scores, labels, K, 1.001 * largest, 1.0))
    some = fit_sparse_head(Problem(scores, labels, K, 0.95 * largest, 1.0))
    assert not none.weight.any()
    assert some.weight.any()


def test_probabilities_as_targets_and_blocks_of_images(data, monkeypatch):
    scores, labels = data
    hard = fit_sparse_head(Problem(scores, labels, K, 0.02))
    certain = fit_sparse_head(Problem(scores, F.one_hot(labels, K).float(), K, 0.02))
    torch.testing.assert_close(certain.weight, hard.weight, rtol=0, atol=1e-5)
    unsure = 0.5 * F.one_hot(labels, K) + 0.5 / K
    monkeypatch.setattr(sparse_head, "_BLOCK", 7 * K)
    blocks = fit_sparse_head(Problem(scores, unsure, K, 0.02))
    assert blocks.violation < 1e-6
    assert blocks.weight.abs().sum() < hard.weight.abs().sum()
