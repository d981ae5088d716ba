"""Rules of relevance propagation: one for each kind of operation, except those with weights.

A rule holds what the operation saw in a batch and takes the relevance of its output (which it may overwrite) to the
relevance of its inputs. What depends on the images alone is computed at the first call and kept, so that all targets of
an image share it. Image i of a batch is never mixed with image j, and no branch taken changes a result. Which branch to
take depends on values; :func:`settle` reads the values for many rules at once, since an accelerator has to wait for
each read.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import torch
from torch import Tensor

EPSILON = 1e-6  # stabilises quotients by sums of both signs
TINY = 1e-9  # what counts as zero


class Rule(Protocol):
    """Relevance of the output to relevance of each input."""

    def __call__(self, relevance: Tensor) -> tuple[Tensor, ...]:
        """One new tensor per input, or slices of ``relevance`` that do not overlap."""
        ...


class Branching:
    """A rule that computes more where values ask for it."""

    _look: Generator[Tensor, float, None] | None = None

    def look(self) -> Generator[Tensor, float, None]:
        """Compute what depends on the images alone; yields scalars and is sent their values."""
        raise NotImplementedError


def settle(rules: Iterable[Branching]) -> None:
    """Let rules that have not yet done so look at the images, in as many reads as the longest of them needs."""
    waiting = []
    for rule in rules:
        if rule._look is None:
            rule._look = rule.look()
            waiting.append((rule._look, next(rule._look)))
    while waiting:
        answers = torch.stack([question for _, question in waiting]).tolist()
        asked = [(look, _next_question(look, answer)) for (look, _), answer in zip(waiting, answers, strict=True)]
        waiting = [(look, question) for look, question in asked if question is not None]


def _next_question(look: Generator[Tensor, float, None], answer: float) -> Tensor | None:
    """The next question of a rule, or None if it has no more."""
    try:
        return look.send(answer)
    except StopIteration:
        return None


def passed(relevance: Tensor) -> tuple[Tensor]:
    """Unchanged: every output has one input (activations, dropout, BatchNorm that no convolution absorbs)."""
    return (relevance,)


def reshaped(relevance: Tensor, shape: torch.Size) -> tuple[Tensor]:
    """Unchanged, in the shape the input had."""
    return (relevance.reshape(shape),)


def uncropped(relevance: Tensor, index: tuple[slice, ...], x: Tensor) -> tuple[Tensor]:
    """Unchanged at its place in the input ``x``; what was cut off took no part in the output and gets nothing."""
    whole = torch.zeros_like(x)
    whole[index] = relevance
    return (whole,)


def split(relevance: Tensor, sizes: list[int], dim: int) -> tuple[Tensor, ...]:
    """To each of the concatenated tensors what arrived at its place."""
    return torch.split(relevance, sizes, dim)


class Residual(Branching):
    """Sum of two tensors: R_a = R·a / (a + b + ε·sign(a + b)), half each where a + b is zero."""

    def __init__(self, a: Tensor, b: Tensor) -> None:
        self.a, self.b = a, b
        self._quotient: tuple[Tensor, Tensor | None]

    def look(self) -> Generator[Tensor, float, None]:
        """1 / (a + b + ε·sign), 0 where a + b is zero; and 0.5 there, if that is anywhere."""
        total = self.a + self.b
        size = total.abs()
        inverse = total.add_(total.sign(), alpha=EPSILON).reciprocal_()
        self._quotient = inverse, None
        if not (yield size.amin()) > TINY:
            zero = size <= TINY
            self._quotient = inverse.masked_fill_(zero, 0), zero * 0.5

    def __call__(self, relevance: Tensor) -> tuple[Tensor, Tensor]:
        """Relevance of ``a`` and of ``b``."""
        settle((self,))
        inverse, half = self._quotient
        equal = None if half is None else relevance * half
        quotient = relevance.mul_(inverse)
        to_a, to_b = quotient * self.a, quotient.mul_(self.b)
        return (to_a, to_b) if equal is None else (to_a.add_(equal), to_b.add_(equal))


@dataclass(frozen=True)
class MaxPool:
    """Winner takes all, the first index in row-major order on ties.

    Args:
        window: kernel size, stride, padding, dilation and ceil mode.
    """

    indices: Tensor
    shape: torch.Size
    window: tuple[Any, ...]

    def __call__(self, relevance: Tensor) -> tuple[Tensor]:
        """Relevance of the input."""
        channels_last = relevance.is_contiguous(memory_format=torch.channels_last)
        layout = torch.channels_last if channels_last else torch.contiguous_format
        form = torch.empty(self.shape, dtype=relevance.dtype, device=relevance.device, memory_format=layout)
        backward = torch.ops.aten.max_pool2d_with_indices_backward
        return (backward(relevance, form, *self.window, self.indices),)


class AveragePool:
    """Relevance by share of the sum: R = x ⊙ poolᵀ(R / (y + ε·sign y))."""

    def __init__(self, x: Tensor, pooled: Tensor, transposed: partial[Tensor]) -> None:
        self.x, self.pooled, self.transposed = x, pooled, transposed

    @classmethod
    def of(cls, x: Tensor, pooled: Tensor, window: tuple[Any, ...] | None) -> AveragePool:
        """The rule of ``avg_pool2d`` with the given arguments, or of ``adaptive_avg_pool2d`` without."""
        if window is None:
            return cls(x, pooled, partial(torch.ops.aten._adaptive_avg_pool2d_backward, self=x))
        names = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")
        arguments = dict(zip(names, window, strict=True))
        return cls(x, pooled, partial(torch.ops.aten.avg_pool2d_backward, self=x, **arguments))

    @cached_property
    def _inverse(self) -> Tensor:
        return (self.pooled + self.pooled.new_full((), EPSILON).copysign(self.pooled)).reciprocal_()

    def __call__(self, relevance: Tensor) -> tuple[Tensor]:
        """Relevance of the input."""
        return (self.transposed(relevance.mul_(self._inverse)).mul_(self.x),)
