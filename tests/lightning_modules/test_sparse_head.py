"""The sparse head: its optimality conditions by hand, and the solution of scikit-learn."""

import math
from dataclasses import replace

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn import functional as F

from protometry.lightning_modules.heads import sparse_head
from protometry.lightning_modules.heads.sparse_head import HeadProblem, Terms, fit_sparse_head

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
    problem = HeadProblem(scores, labels, K, penalty, l1_ratio)
    head = fit_sparse_head(problem, 1e-8)
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


RAW = Terms(standardize=False, bias=False)


@pytest.mark.parametrize("penalty_factor", [None, [1.0, 5.0, 5.0, 1.0, 2.0, 1.0]], ids=["alike", "by unit"])
@pytest.mark.parametrize("penalty", [0.1, 0.02])
def test_raw_scores_without_bias_against_scikit_learn(data, penalty, penalty_factor):
    """A penalty by unit equals the penalty of a score divided by its factor; the objective is computed here.

    Of three classes: added to a score's weights of all classes, a number changes no probability, and of an even number
    of weights there is a whole interval of medians, for which their absolute values have the same sum.
    """
    scores, labels = data[0].double(), data[1].clamp(max=2)
    factors = torch.ones(U, dtype=torch.float64) if penalty_factor is None else torch.tensor(penalty_factor).double()
    problem = HeadProblem(scores, labels, 3, penalty, 1.0, replace(RAW, penalty_factor=factors.expand(3, -1)))
    head = fit_sparse_head(problem, 1e-8)
    saga = LogisticRegression(
        penalty="l1", solver="saga", C=1 / (80 * penalty), tol=1e-10, max_iter=100_000, fit_intercept=False
    ).fit((scores / factors).numpy(), labels.numpy())
    result = torch.tensor(saga.coef_) / factors
    values = [
        (F.cross_entropy(scores @ w.T, labels) + penalty * (factors * w.abs()).sum()).item()
        for w in (head.weight, result)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    assert problem.objective(head.weight, head.bias) == pytest.approx(values[0], rel=1e-12)
    assert torch.equal(head.weight == 0, result.abs() < 1e-6)
    assert not head.bias.any()


@pytest.mark.parametrize("listed", [2**28, 0], ids=["units of each class", "units of all classes"])
def test_working_sets_grow_shrink_and_change_signs(listed, monkeypatch):
    """From no weight, from all weights with the wrong sign, and from the solution of half the penalty."""
    monkeypatch.setattr(sparse_head, "_LISTED", listed)
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(150, 60, generator=generator).double(), torch.arange(150) % 3
    problem = HeadProblem(scores, labels, 3, 0.02, 1.0, RAW)
    saga = LogisticRegression(l1_ratio=1.0, solver="saga", C=1 / 3, tol=1e-8, max_iter=100_000, fit_intercept=False)
    expected = torch.tensor(saga.fit(scores.numpy(), labels.numpy()).coef_)
    cold = fit_sparse_head(problem, 1e-9)
    assert (cold.weight != 0).sum(dim=1).max() > sparse_head._FIRST
    starts = [replace(cold, weight=-cold.weight), fit_sparse_head(problem.at(0.01))]
    for head in (cold, *(fit_sparse_head(problem, 1e-9, start=start) for start in starts)):
        torch.testing.assert_close(head.weight, expected, rtol=0, atol=1e-4)
        assert torch.equal(head.weight == 0, expected.abs() < 1e-6)
        assert problem.violation(head.weight, head.bias) == pytest.approx(head.violation, abs=1e-12)


def test_several_labels_against_scikit_learn(data):
    """One problem for each label."""
    scores, labels = data[0].double(), torch.stack([data[1] >= 2, data[1] == 1], dim=1)
    head = fit_sparse_head(HeadProblem(scores, labels, 2, 0.02, 1.0, replace(RAW, sigmoid=True)), 1e-8)
    saga = LogisticRegression(penalty="l1", solver="saga", C=1 / 1.6, tol=1e-10, max_iter=100_000, fit_intercept=False)
    for weight, label in zip(head.weight, labels.T, strict=True):
        expected = torch.tensor(saga.fit(scores.numpy(), label.numpy()).coef_[0])
        torch.testing.assert_close(weight, expected, rtol=0, atol=1e-4)
        assert torch.equal(weight == 0, expected.abs() < 1e-6)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_one_score_by_hand(nonnegative):
    """A score of 1 in all images: sigmoid(w) is the share p of images with the label, moved towards 1/2 by the penalty.

    Shares .8, .2, .6, penalties .1, .1 and .3: w = logit(.7), logit(.3) or none if below 0, and 0. The weight of the
    last label has to be 0.
    """
    labels = torch.arange(10)[:, None] < torch.tensor([8, 2, 6, 9])
    penalty_factor = torch.tensor([[1.0], [1.0], [3.0], [math.inf]])
    terms = replace(RAW, penalty_factor=penalty_factor, nonnegative=nonnegative, sigmoid=True)
    problem = HeadProblem(torch.ones(10, 1), labels, 4, 0.1, 1.0, terms)
    cold = fit_sparse_head(problem)
    warm = fit_sparse_head(problem, start=fit_sparse_head(HeadProblem(torch.ones(10, 1), labels, 4, 0.2, 1.0, terms)))
    logit = math.log(0.7 / 0.3)
    for head in (cold, warm):
        expected = pytest.approx([logit, 0 if nonnegative else -logit, 0, 0], abs=1e-5)
        assert head.weight[:, 0].tolist() == expected
        assert head.violation < 1e-6


def test_optimality_conditions_by_their_definition(data):
    """The gradient of the cross-entropy by autograd, the rest by hand; they hold at the solution and not near it."""
    scores, labels = data
    penalty, alpha = 0.02, 0.9
    problem = HeadProblem(scores, labels, K, penalty, alpha)
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


def test_a_violation_that_is_not_a_number_is_not_0(data):
    problem = HeadProblem(*data, K, 0.02)
    for place in (torch.zeros(K, U), torch.full((K, U), torch.nan)):
        assert math.isnan(problem.violation(place.double(), torch.full((K,), torch.nan).double()))


def test_above_the_largest_gradient_no_score_is_read(data):
    scores, labels = data
    x = HeadProblem(scores, labels, K, 1.0).scores
    largest = (x.T @ (F.one_hot(labels).double() - 1 / K)).abs().max().item() / len(x)  # λ_max α
    none = fit_sparse_head(HeadProblem(scores, labels, K, 1.001 * largest, 1.0))
    some = fit_sparse_head(HeadProblem(scores, labels, K, 0.95 * largest, 1.0))
    assert not none.weight.any()
    assert some.weight.any()


def test_probabilities_as_targets_and_blocks_of_images(data, monkeypatch):
    scores, labels = data
    hard = fit_sparse_head(HeadProblem(scores, labels, K, 0.02))
    certain = fit_sparse_head(HeadProblem(scores, F.one_hot(labels, K).float(), K, 0.02))
    torch.testing.assert_close(certain.weight, hard.weight, rtol=0, atol=1e-5)
    unsure = 0.5 * F.one_hot(labels, K) + 0.5 / K
    monkeypatch.setattr(sparse_head, "_BLOCK", 7 * K)
    blocks = fit_sparse_head(HeadProblem(scores, unsure, K, 0.02))
    assert blocks.violation < 1e-6
    assert blocks.weight.abs().sum() < hard.weight.abs().sum()
