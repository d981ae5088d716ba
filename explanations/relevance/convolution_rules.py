"""The rule of convolutions and linear layers, α1β0 and zᴮ, with the filters it is computed from."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from protometry.explanations.relevance.prp_and_lrp_rules import TINY, Branching, settle

ROUNDING = 1e-6  # what counts as zero in the pixel layer, whose terms cancel, relative to the largest possible sum
_VECTOR = 16  # channels CPU kernels compute at once


@dataclass(frozen=True)
class LinearMap:
    """``linear`` without bias, and its transpose."""

    def __call__(self, x: Tensor, weight: Tensor) -> Tensor:
        """The map of ``(..., D)``."""
        return F.linear(x, weight)

    def transposed(self, s: Tensor, weight: Tensor, x: Tensor) -> Tensor:
        """The transpose, shaped like ``x``."""
        return s @ weight


@dataclass(frozen=True)
class ConvolutionMap:
    """``conv2d`` without bias, and its transpose."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    def __call__(self, x: Tensor, weight: Tensor) -> Tensor:
        """The map of ``(B, C, H, W)``."""
        return F.conv2d(x, weight, None, self.stride, self.padding, self.dilation, self.groups)

    def transposed(self, s: Tensor, weight: Tensor, x: Tensor) -> Tensor:
        """The transpose, shaped like ``x``."""
        if weight.shape[1] < _VECTOR and self.groups == 1 and self.dilation == (1, 1):
            return self._phases(s, weight, x)
        window = (self.stride, self.padding, self.dilation, False, (0, 0), self.groups, (True, False, False))
        return torch.ops.aten.convolution_backward(s, x, weight, None, *window)[0]  # type: ignore[no-any-return]

    def _phases(self, s: Tensor, weight: Tensor, x: Tensor) -> Tensor:
        """The same for few input channels: the offsets within a stride become channels of one plain convolution.

        Input row i + padding = stride·q + r takes part in output row q − j through kernel row r + stride·j. Measured on
        the first layer of a ResNet: 2.6 times faster than the kernel for the gradient, which computes 16 channels.
        """
        (rows, columns), (outputs, inputs, *kernel) = self.stride, weight.shape
        m, n = -(-kernel[0] // rows), -(-kernel[1] // columns)
        padded = F.pad(weight, (0, n * columns - kernel[1], 0, m * rows - kernel[0]))
        phases = padded.reshape(outputs, inputs, m, rows, n, columns).flip(2, 4).permute(1, 3, 5, 0, 2, 4)
        phases = phases.reshape(inputs * rows * columns, outputs, m, n).contiguous(memory_format=torch.channels_last)
        full = F.conv2d(s, phases, padding=(m - 1, n - 1))
        height, width = full.shape[2:]
        full = full.reshape(-1, inputs, rows, columns, height, width).permute(0, 1, 4, 2, 5, 3)
        full = full.reshape(-1, inputs, height * rows, width * columns)
        (top, left), (h, w) = self.padding, x.shape[2:]
        return F.pad(full, (-left, w + left - full.shape[3], -top, h + top - full.shape[2]))


Scale = tuple[Tensor, Tensor | None, float]


class Filters:
    """Weights of a convolution or linear layer, times the factor of the BatchNorm folded into it, split by sign.

    Args:
        weight: ``(O, ...)``.
        scale: running variance ``(O,)``, weight ``(O,)`` or None and ε of the BatchNorm.
    """

    def __init__(self, weight: Tensor, scale: Scale | None = None) -> None:
        self.weight, self.scale = weight, scale

    @cached_property
    def folded(self) -> Tensor:
        """w, times the factor."""
        weight = self.weight.detach()
        if self.scale is None:
            return weight
        variance, factor, epsilon = self.scale
        inverse = (variance + epsilon).rsqrt()
        scale = inverse if factor is None else factor.detach() * inverse
        return weight * scale.view(-1, *[1] * (weight.ndim - 1))

    @cached_property
    def positive(self) -> Tensor:
        """w⁺."""
        return self.folded.clamp(min=0)

    @cached_property
    def negative(self) -> Tensor:
        """w⁻."""
        return self.folded.clamp(max=0)

    @cached_property
    def magnitude(self) -> Tensor:
        """|w|."""
        return self.folded.abs()


Part = tuple[Tensor, Tensor]  # input and weight
Term = tuple[Tensor, list[Part]]  # what relevance is divided by, inverted, and what it is shared by


class Weighted(Branching):
    """Convolution or linear layer: α1β0 (bias ignored), zᴮ where it sees pixels, and the ladder.

    α1β0: z = w⁺∗x⁺ + w⁻∗x⁻, s = R/z, R_x = x⁺ ⊙ w⁺ᵀs + x⁻ ⊙ w⁻ᵀs. zᴮ with pixels between l and h: the same with x - l
    for x⁺ and x - h for x⁻, which is w∗(x - l) + d∗1 with one more channel d = Σ_c (h_c - l_c)·|w⁻_c| on a plane of
    ones that padding does not reach; summed over the channels of the image. Ladder (ours): where z is zero, the output
    is carried by its bias, and its relevance goes by |x|·|w|; where that is zero too, evenly over the window.

    Args:
        bounds: ``(2, C, 1, 1)``, l and h, if ``x`` holds pixels.
        ladder: False drops the relevance of outputs carried by their bias.
    """

    filters: Filters
    frame: Tensor | None = None  # (B, 1, H, W), 0 where ``x`` is padding already

    def __init__(
        self,
        x: Tensor,
        operator: ConvolutionMap | LinearMap,
        filters: Filters,
        non_negative: bool = False,
        bounds: Tensor | None = None,
        ladder: bool = True,
    ) -> None:
        self.x, self.operator, self.filters = x, operator, filters
        self.non_negative, self.bounds, self.ladder = non_negative, bounds, ladder
        self._terms: list[Term]

    def look(self) -> Generator[Tensor, float, None]:
        """1/z and its parts; then, only if some z is zero, the rungs of the ladder, each 0 where it is not used.

        Masks are floats, with which CPUs are several times faster than with booleans.
        """
        parts, floor = self._parts()
        z = self._sum(parts)
        if (yield z.amin()) > floor:
            self._terms = [(z.reciprocal_(), parts)]
            return
        inverse = _inverse(z, floor)
        self._terms = [(inverse, parts)]
        if not self.ladder:
            return
        left = 1 - inverse.sign()
        by_size = [(self.x if self.non_negative else self.x.abs(), self.filters.magnitude)]
        by_size_inverse = _inverse(self._sum(by_size), TINY).mul_(left)
        self._terms.append((by_size_inverse, by_size))
        left = left - by_size_inverse.sign()
        if (yield left.amax()) > 0:
            ones = torch.ones_like(self.x) if self.frame is None else self.frame.expand_as(self.x)
            evenly = [(ones, torch.ones_like(self.filters.folded))]
            self._terms.append((_inverse(self._sum(evenly), TINY).mul_(left), evenly))

    @cached_property
    def _ladder_mask(self) -> Tensor:
        """1 where the ladder is used, else 0."""
        return 1 - self._terms[0][0].sign()

    def _parts(self) -> tuple[list[Part], float]:
        """Pairs of inputs and weights whose products are all positive or zero, and what counts as zero."""
        filters = self.filters
        if self.bounds is not None:
            low, high = self.bounds.amin(0), self.bounds.amax(0)
            largest = (filters.magnitude * (high - low)).sum((1, 2, 3), keepdim=True).clamp(min=TINY)
            spare = -(filters.negative * (high - low)).sum(1, keepdim=True)
            weight = torch.cat([filters.folded, spare], dim=1) / largest  # z from 0 to 1
            return [(F.pad(self.x - low, (0, 0, 0, 0, 0, 1), value=1.0), weight)], ROUNDING
        if self.non_negative:
            return [(self.x, filters.positive)], TINY
        return [(self.x.clamp(min=0), filters.positive), (self.x.clamp(max=0), filters.negative)], TINY

    def _sum(self, parts: list[Part]) -> Tensor:
        total, *others = [self.operator(x, weight) for x, weight in parts]
        for other in others:
            total.add_(other)
        return total

    def bypass(self, relevance: Tensor) -> Tensor | None:
        """Sum of |R| that takes the ladder, or None if no output in the batch is carried by its bias."""
        settle((self,))
        if len(self._terms) == 1:
            return None
        carried: Tensor = torch.linalg.vector_norm(relevance * self._ladder_mask, ord=1)
        return carried

    def __call__(self, relevance: Tensor) -> tuple[Tensor]:
        """Relevance of the input; of pixels, summed over their channels."""
        settle((self,))
        shares: list[Tensor] = []
        for inverse, parts in self._terms:
            last = inverse is self._terms[-1][0]
            s = relevance.mul_(inverse) if last else relevance * inverse
            shares += [self.operator.transposed(s, weight, x).mul_(x) for x, weight in parts]
        if self.bounds is not None:
            shares = [share.sum(1, keepdim=True) for share in shares]
        total, *others = shares
        for other in others:
            total.add_(other)
        return (total,)


def _inverse(z: Tensor, floor: float) -> Tensor:
    """1 / z above the floor, else 0; overwrites ``z``."""
    return F.threshold(z, floor, torch.inf, inplace=True).reciprocal_()
