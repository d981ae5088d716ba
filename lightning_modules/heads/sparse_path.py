"""Linear heads with a given number of weights, from one regularisation path."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from protometry.lightning_modules.heads.sparse_head import HeadProblem, SparseHead, fit_sparse_head

_STEPS, _STEP = 48, 2**0.25  # of the penalty, down to 1/4096 of that at which all weights are 0
_VIOLATION = 0.01  # of the optimality conditions, of the penalty


@torch.no_grad()
def heads_with_weights(scores: Tensor, labels: Tensor, num_classes: int, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Heads with at most so many weights per class that are not 0, on average over classes.

    Source: Srivastava et al. (2024), accuracy at a number of effective concepts, as released: the elastic net with α =
    0.99 on standardised scores, with a bias, whose penalty falls until a head has as many weights as wanted, of all
    classes together; of these, the largest are kept. Deviation: steps of 2^(1/4) in place of 2^(1/10), each solved to
    its optimality conditions.

    Args:
        scores: ``(n, U)`` float, finite, on the device to compute on.
        labels: ``(n,)`` int64 in ``[0, K)``.
        num_classes: K.
        sizes: T numbers of weights per class, ascending. Where the path ends before, or there are fewer units, the last
            head is taken as it is.

    Returns:
        Weights ``(T, K, U)`` and biases ``(T, K)`` float64, for scores as they are; NaN if no score varies.

    Example:
        >>> scores = torch.tensor([[-1.0, 0.1], [-1.0, -0.1], [1.0, 0.1], [1.0, -0.1]])
        >>> weight, _ = heads_with_weights(scores, torch.tensor([0, 0, 1, 1]), 2, sizes=[1])
        >>> (weight[0] != 0).tolist()
        [[True, False], [True, False]]
    """
    problem = HeadProblem(scores, labels, num_classes, penalty=1.0)
    largest = problem.largest_penalty()
    if largest == 0:
        shape = len(sizes), num_classes, scores.shape[1]
        return scores.new_full(shape, torch.nan, dtype=torch.float64), scores.new_zeros(shape[:2], dtype=torch.float64)
    heads: list[SparseHead] = []
    solved: SparseHead | None = None
    for step in range(1, _STEPS + 1):
        penalty = largest / _STEP**step
        solved = fit_sparse_head(problem.at(penalty), _VIOLATION * penalty, start=solved)
        count = int((solved.weight != 0).sum())
        heads += [solved] * sum(size * num_classes <= count for size in sizes[len(heads) :])
        if len(heads) == len(sizes):
            break
    assert solved is not None
    heads += [solved] * (len(sizes) - len(heads))
    pairs = [
        problem.on_raw_scores(_largest_of(head.weight, size * num_classes), head.bias)
        for head, size in zip(heads, sizes, strict=True)
    ]
    weights, biases = zip(*pairs, strict=True)
    return torch.stack(weights), torch.stack(biases)


def _largest_of(weight: Tensor, count: int) -> Tensor:
    """The weights, 0 but for the largest by magnitude."""
    flat = weight.flatten()
    kept = flat.abs().topk(min(count, len(flat))).indices
    return torch.zeros_like(flat).index_copy(0, kept, flat[kept]).view_as(weight)
