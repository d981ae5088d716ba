"""A concept layer learnt without annotations: each neuron becomes like the similarities of the images to a word.

Source: Oikarinen et al. 2023, *Label-Free Concept Bottleneck Models*, section 3 (steps 2 and 3); rate, steps and early
stop are those of their code.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

STEPS, EVERY, RATE, BATCH = 1000, 50, 1e-3, 50_000  # as released


@dataclass(frozen=True)
class ConceptLayer:
    """A learnt layer without bias.

    Args:
        weight: ``(L, D)`` float32.
        similarities: ``(L,)`` float32 in [-1, 1], of each neuron to its word on the held-out images.
        step: the step after which these weights were taken.
    """

    weight: Tensor
    similarities: Tensor
    step: int


def cubed_cosine(first: Tensor, second: Tensor) -> Tensor:
    """How alike two signals are over images, above all where they are strong.

    Σ_i p̄_i³ q̄_i³ / (‖p̄³‖ ‖q̄³‖), column by column, where p̄ and q̄ are p and q minus their mean over images.

    Args:
        first: ``(n, L)`` float, p.
        second: ``(n, L)`` float, q.

    Returns:
        ``(L,)`` in [-1, 1]; undefined for a column that does not vary.

    Example:
        >>> word = torch.tensor([[-1.0, -1.0], [0.0, 1.0], [1.0, 0.0]])  # means are 0; 2 of 2, and 1 of 2
        >>> cubed_cosine(word, torch.tensor([[0.0, -1.0], [2.0, 0.0], [4.0, 1.0]])).round(decimals=4)
        tensor([1.0000, 0.5000])
    """
    cubes = ((signal - signal.mean(dim=0)) ** 3 for signal in (first, second))
    unit, other = (F.normalize(cube, dim=0) for cube in cubes)
    return (unit * other).sum(dim=0)


def fit_concept_layer(embeddings: Tensor, strengths: Tensor, seed: int) -> ConceptLayer:
    """Learn the layer by Adam on the mean cubed cosine.

    A fifth of the images is held out. Every 50 steps the layer is judged by them; learning stops where it is no better
    than 50 steps before, whose layer is taken. At most 50,000 images, drawn anew in every step, are used at once.

    Args:
        embeddings: ``(n, D)`` float32 of the images.
        strengths: ``(n, L)`` float32, similarity of every image to every word, each column with some variance.
        seed: of the first weights, the held-out images and the draws.
    """
    generator = torch.Generator().manual_seed(seed)
    strengths = (strengths - strengths.mean(dim=0)) / strengths.std(dim=0)  # changes no cosine, only its rounding
    order = torch.randperm(len(embeddings), generator=generator)
    held_out, rows = order[: len(order) // 5].sort().values, order[len(order) // 5 :].sort().values
    bound = embeddings.shape[1] ** -0.5
    shape = (strengths.shape[1], embeddings.shape[1])
    weight = (2 * torch.rand(shape, generator=generator) - 1).mul_(bound).requires_grad_()
    optimizer = torch.optim.Adam([weight], lr=RATE)
    best = ConceptLayer(weight.detach().clone(), torch.full(shape[:1], -torch.inf), 0)
    for step in range(STEPS):
        batch = rows
        if len(rows) > BATCH:
            batch = rows[torch.randperm(len(rows), generator=generator)[:BATCH]]
        with torch.enable_grad():
            loss = -cubed_cosine(strengths[batch], embeddings[batch] @ weight.T).mean()
        (weight.grad,) = torch.autograd.grad(loss, [weight])
        optimizer.step()
        if step % EVERY and step < STEPS - 1:
            continue
        similarities = cubed_cosine(strengths[held_out], embeddings[held_out] @ weight.detach().T)
        if not similarities.mean() > best.similarities.mean():
            break
        best = ConceptLayer(weight.detach().clone(), similarities, step + 1)
    return best
