"""A linear head with an elastic-net penalty, solved over all images at once to its optimality conditions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from scipy.optimize import Bounds, minimize
from torch import Tensor
from torch.nn import functional as F

_BLOCK = 2**26  # logits at once: 512 MiB
_AXES = {2: "un", 3: "kun"}  # of scores that all classes read, or class k those at k
_LISTED = 2**28  # scores of working sets with other units for each class: 2 GiB
_ROUNDS = 50  # 4 to 10 are usual
_FIRST = 10  # weights per class in the first round
_ENOUGH = 0.1  # the share of the violation that may be left after a round


@dataclass(frozen=True)
class SparseHead:
    """The minimum of an elastic-net problem.

    Args:
        weight: ``(K, U)`` float64.
        bias: ``(K,)`` float64.
        violation: the largest violation of the optimality conditions, see :meth:`HeadProblem.violation`.
    """

    weight: Tensor
    bias: Tensor
    violation: float
    evaluations: int


@dataclass(frozen=True)
class Terms:
    """Constraints and loss of a head; by default, a softmax head with a bias.

    Args:
        penalty_factor: h, ``(K, U)`` float >= 0; inf fixes a weight at 0. None for 1 everywhere.
        standardize: whether the penalty applies to standardised scores.
        sigmoid: whether classes are independent labels, so that targets are ``(n, K)`` and the loss of an image is the
            sum over classes of the binary cross-entropy.
    """

    penalty_factor: Tensor | None = None
    standardize: bool = True
    bias: bool = True
    nonnegative: bool = False
    sigmoid: bool = False


class HeadProblem:
    """Mean cross-entropy + λ Σ_ku h_ku (α|W_ku| + (1 - α)/2 W_ku²) of the head W s + b.

    Args:
        scores: ``(n, U)`` float, s, on the device to compute on. Standardised here, columns that do not vary become 0.
        targets: ``(n,)`` int64 classes, or ``(n, K)`` float probabilities, possibly times a weight of the image; of
            several labels NaN where unknown, which adds nothing.
        penalty: λ >= 0.
        l1_ratio: α in [0, 1]; 0 for squares only.

    Raises:
        ValueError: if a score is not finite.
    """

    def __init__(
        self,
        scores: Tensor,
        targets: Tensor,
        num_classes: int,
        penalty: float,
        l1_ratio: float = 0.99,
        terms: Terms | None = None,
    ) -> None:
        refuse_broken(scores)
        self.terms = terms = terms or Terms()
        self.scores = scores.T.contiguous().double().T  # those of a unit next to each other
        self.mean, self.deviation = torch.zeros_like(self.scores[0]), torch.ones_like(self.scores[0])
        if terms.standardize:
            deviation, self.mean = torch.std_mean(self.scores, dim=0, correction=0)
            self.deviation = torch.where(vary(scores), deviation, torch.inf)
            self.scores = (self.scores - self.mean) / self.deviation
        self.targets = targets.to(scores.device) if targets.ndim == 1 else targets.to(self.scores).T.contiguous().T
        self.read = self.scores.T  # (U, n), or (K, m, n) if each class has units of its own
        self.shape = (num_classes, scores.shape[1])
        penalty_factor = torch.ones(self.shape) if terms.penalty_factor is None else terms.penalty_factor
        self.fixed = penalty_factor.isinf().to(scores.device)  # at 0
        self.penalty_factor = penalty_factor.to(self.scores).masked_fill(self.fixed, 0.0)
        self.l1_ratio = l1_ratio
        self.l1, self.l2 = penalty * l1_ratio, penalty * (1 - l1_ratio)

    def at(self, penalty: float) -> HeadProblem:
        """The same problem with another penalty."""
        other = copy(self)
        other.l1, other.l2 = penalty * self.l1_ratio, penalty * (1 - self.l1_ratio)
        return other

    def largest_penalty(self) -> float:
        """The smallest penalty for which all weights are 0."""
        zero = torch.zeros(self.shape, dtype=torch.float64, device=self.scores.device)
        _, slope, _ = self.smooth(zero, zero[:, 0])
        pull = -slope if self.terms.nonnegative else slope.abs()
        return (pull / (self.l1_ratio * self.penalty_factor)).masked_fill(self.fixed, 0.0).max().item()

    def within(self, units: Tensor, free: Tensor) -> HeadProblem:
        """The problem in the weights ``free``, ``(K, U)`` bool, of units ``(m,)`` or, class by class, ``(K, m)``."""
        part, listed = copy(self), units.expand(self.shape[0], -1)
        part.read, part.penalty_factor = self.scores.T[units], self.penalty_factor.gather(1, listed)
        part.fixed = (self.fixed | ~free).gather(1, listed)
        return part

    def objective(self, weight: Tensor, bias: Tensor) -> float:
        """The objective at a weight ``(K, U)`` and a bias ``(K,)``, both float64."""
        value, _, _ = self.cross_entropy(weight, bias, self.read[:0])
        penalties = self.penalty_factor * (self.l1 * weight.abs() + self.l2 / 2 * weight.square())
        return (value + penalties.sum()).item()

    def smooth(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Cross-entropy plus squares, and its gradients with respect to weight and bias, 0 for fixed parameters."""
        value, slope, offset = self.cross_entropy(weight, bias, self.read)
        value = value + self.l2 / 2 * (self.penalty_factor * weight.square()).sum()
        slope = slope + self.l2 * self.penalty_factor * weight
        return value, slope.masked_fill(self.fixed, 0.0), offset

    def cross_entropy(self, weight: Tensor, bias: Tensor, read: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The mean over images, and its gradients with respect to the weights of other scores ``read`` and the bias."""
        loss_and_error = _sigmoid_loss if self.terms.sigmoid else _softmax_loss
        value, slope, offset = torch.zeros_like(bias[0]), torch.zeros_like(bias[0]), torch.zeros_like(bias)
        for scores, others, targets in self._blocks(read):
            logits = torch.einsum(f"ku,{_AXES[scores.ndim]}->kn", weight, scores)
            loss, error = loss_and_error(logits.add_(bias[:, None]), targets)
            slope = slope + torch.einsum(f"kn,{_AXES[others.ndim]}->ku", error, others)
            value, offset = value + loss, offset + error.sum(dim=1)
        n = len(self.scores)
        return value / n, slope / n, offset * self.terms.bias / n

    def _blocks(self, read: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        blocks = 1 + len(self.scores) * self.shape[0] // _BLOCK
        images_last = (self.read, read, self.targets.movedim(0, -1))
        return zip(*(tensor.chunk(blocks, dim=-1) for tensor in images_last), strict=True)

    def violation(self, weight: Tensor, bias: Tensor) -> float:
        """The violation of the optimality (KKT) conditions.

        They require that the gradient g of :meth:`smooth` is -λαh·sign(W) where W is not 0, at most λαh in size where
        it is (at least -λαh for weights that may not be negative), and 0 for the bias.

        Returns:
            The largest |g + λαh·sign(W)|, max(|g| - λαh, 0) or |g| of the three, in the order given.
        """
        _, slope, offset = self.smooth(weight, bias)
        return _largest(self.excess(weight, slope), offset)

    def excess(self, weight: Tensor, slope: Tensor) -> Tensor:
        """By how much each weight violates its condition, ``(K, U)``; below 0 where a weight of 0 is far from it."""
        at_zero, l1 = -slope if self.terms.nonnegative else slope.abs(), self.l1 * self.penalty_factor
        return torch.where(weight == 0, at_zero - l1, (slope + l1 * weight.sign()).abs())

    def on_raw_scores(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """The same head for unstandardised scores: weight ``(K, U)`` and bias ``(K,)``, 0 where they were 0."""
        weight = weight / self.deviation
        return weight, bias - weight @ self.mean


def refuse_broken(scores: Tensor) -> None:
    """Refuse scores ``(n, U)`` that are not finite, by which no head can be solved or judged.

    Raises:
        ValueError: with the number of images.
    """
    if broken := int((~scores.isfinite()).any(dim=1).sum()):
        raise ValueError(
            f"Expected finite scores, but got NaN or infinity for {broken} of {len(scores)} images. The model that "
            "gives them is damaged, or its training diverged."
        )


def vary(scores: Tensor) -> Tensor:
    """``(U,)`` bool, the scores ``(n, U)`` of a unit differ between images by more than their rounding errors.

    Example:
        >>> vary(torch.tensor([[0.1, 7.0, 0.0], [0.2, 7.0 + 5e-7, 0.0]]))
        tensor([ True, False, False])
    """
    least, largest = scores.aminmax(dim=0)
    return largest - least > 4 * torch.finfo(scores.dtype).eps * scores.abs().amax(dim=0)


def _largest(excess: Tensor, offset: Tensor) -> float:
    return torch.cat([excess.flatten(), offset.abs()]).max().clamp_min(0.0).item()


def _softmax_loss(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Summed over images, and its gradient ``(K, n)``, in the memory of the logits."""
    logits -= logits.amax(dim=0)
    soft = targets.ndim == 2
    right = (targets * logits).sum() if soft else logits.gather(0, targets[None]).sum()
    total = targets.sum(dim=0) if soft else torch.ones_like(logits[0])
    error = logits.exp_()
    normaliser = error.sum(dim=0)
    error *= total / normaliser
    if soft:
        error -= targets
    else:
        error[targets, torch.arange(len(targets), device=targets.device)] -= 1
    return torch.dot(total, normaliser.log()) - right, error


def _sigmoid_loss(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    known, targets = (~targets.isnan()).to(logits), targets.nan_to_num()
    loss = F.binary_cross_entropy_with_logits(logits, targets, known, reduction="sum")
    return loss, (logits.sigmoid() - targets) * known


def fit_sparse_head(
    problem: HeadProblem, tolerance: float = 1e-6, most: int = 15_000, start: SparseHead | None = None
) -> SparseHead:
    """The solution of the problem, by L-BFGS-B on working sets.

    A round solves the problem in the weights that are not 0 and in those that violate their optimality conditions most,
    and then looks at all conditions, until no violation exceeds ``tolerance``, or for ``most`` passes over the images.
    Almost all passes read only the units of the working set. In float64 on the device of the scores. Weights that a
    class does not use are exactly 0. If several solutions are as good, as for two equal units, it finds one of them.

    Example:
        >>> scores = torch.tensor([[-1.0, 0.1], [-1.0, -0.1], [1.0, 0.1], [1.0, -0.1]])
        >>> head = fit_sparse_head(HeadProblem(scores, torch.tensor([0, 0, 1, 1]), num_classes=2, penalty=0.1))
        >>> (head.weight != 0).tolist(), head.violation < 1e-6
        ([[True, False], [True, False]], True)
    """
    weight = torch.zeros(problem.shape, dtype=torch.float64, device=problem.scores.device)
    bias = torch.zeros_like(weight[:, 0])
    if start is not None:
        weight, bias = start.weight, start.bias
    slope, violation, passes = torch.zeros_like(weight), math.inf, 0
    squares = problem.l1 == 0  # alone, for which all weights are solved for at once
    excess = torch.full_like(weight, float(squares))
    for _ in range(_ROUNDS):
        part, listed = _working_set(problem, weight, excess)
        enough = tolerance if squares else max(tolerance, _ENOUGH * violation)
        first = weight.gather(1, listed), bias, slope.gather(1, listed)
        parts, bias, count = _solve(part, *first, enough, most - passes)
        weight = torch.zeros_like(weight).scatter(1, listed, parts)
        _, slope, offset = part.cross_entropy(parts, bias, problem.read)
        slope = (slope + problem.l2 * problem.penalty_factor * weight).masked_fill(problem.fixed, 0.0)
        excess = problem.excess(weight, slope)
        violation = _largest(excess, offset)
        passes += count + 1
        if violation <= tolerance or passes >= most:
            break
    return SparseHead(weight, bias, violation, passes)


def _working_set(problem: HeadProblem, weight: Tensor, excess: Tensor) -> tuple[HeadProblem, Tensor]:
    """The problem in the weights that are not 0 and the worst violators, and their units, ``(K, m)``."""
    classes, units = problem.shape
    used = weight != 0
    free = used | (excess > 0)
    most_used, most_free = int(used.sum(dim=1).max()), int(free.sum(dim=1).max())
    count = most_free if problem.l1 == 0 else min(most_free, max(_FIRST, 2 * most_used))
    if count * classes <= 4 * units and count * classes * len(problem.scores) <= _LISTED:
        read = excess.masked_fill(used, math.inf).topk(count, dim=1).indices
    else:  # one product with the scores of all these units is faster
        read = free.any(dim=0).nonzero()[:, 0]
    return problem.within(read, free), read.expand(classes, -1)


def _solve(
    problem: HeadProblem, weight: Tensor, bias: Tensor, slope: Tensor, tolerance: float, most: int
) -> tuple[Tensor, Tensor, int]:
    """Weights, bias and number of passes.

    A weight keeps its sign, and is solved for as its sign times a size of at least 0, in which the penalty is smooth.
    """
    l1, violation = problem.l1 * problem.penalty_factor, math.inf
    bounded = (l1 > 0) | problem.terms.nonnegative
    signs = torch.where(weight == 0, -slope, weight).sign().where((l1 > 0) & (not problem.terms.nonnegative), 1.0)

    def flat(weight: Tensor, bias: Tensor) -> Any:
        return torch.cat([weight.flatten(), bias]).cpu().numpy()

    def unpack(flat: Any) -> tuple[Tensor, Tensor]:
        flat = torch.tensor(flat, device=signs.device)
        return flat[: signs.numel()].view(signs.shape), flat[signs.numel() :]

    def value_and_gradient(sizes_and_bias: Any) -> tuple[float, Any]:
        nonlocal violation
        sizes, bias = unpack(sizes_and_bias)
        value, slope, offset = problem.smooth(signs * sizes, bias)
        slope = (signs * slope + l1).masked_fill(problem.fixed, 0.0)
        violation = _largest(torch.where(bounded & (sizes == 0), -slope, slope.abs()), offset)
        return (value + (l1 * sizes).sum()).item(), flat(slope, offset)

    def stop(_: Any) -> None:
        if violation <= tolerance:
            raise StopIteration

    most_bias = torch.full_like(bias, math.inf if problem.terms.bias else 0.0)
    largest = torch.full_like(weight, math.inf).masked_fill(problem.fixed, 0.0)
    bounds = Bounds(flat(-largest.masked_fill(bounded, 0.0), -most_bias), flat(largest, most_bias))
    gtol = 0.0 if tolerance < math.inf else math.inf  # the first round only looks at the gradient
    options = {"ftol": 0.0, "gtol": gtol, "maxiter": most, "maxfun": most, "maxcor": 20}
    how: Any = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "callback": stop, "options": options}
    solution = minimize(value_and_gradient, flat(signs * weight, bias), **how)
    sizes, bias = unpack(solution.x)
    return signs * sizes + 0.0, bias, int(solution.nfev)  # no -0.0, which a step of rate 0 would change
