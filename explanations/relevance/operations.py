"""Table of the operations that relevance can pass, with the rule of each.

A handler takes the arguments of the operation as the operation does, notes what is known of the output for all images,
and returns the rule, or None if relevance cannot pass with these arguments. An operation without a handler
has no rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.modules.utils import _pair

from protometry.explanations.relevance.convolution_rules import ConvolutionMap, Filters, LinearMap, Scale, Weighted
from protometry.explanations.relevance.prp_and_lrp_rules import (
    AveragePool,
    MaxPool,
    Residual,
    Rule,
    passed,
    reshaped,
    split,
    uncropped,
)

Bounds = Literal["channel", "scalar"]
_SCALAR_BOUNDS = (-2.118, 2.640)  # the darkest red and the brightest blue, normalised with ImageNet's statistics


@dataclass(eq=False)
class Operation:
    """One operation on a tensor that depends on the images.

    Args:
        bounds: ``(2, C, 1, 1)``, the output for black and for white, as long as it is rescaled pixels.
        place: path and type of the module it ran in, if recorded.
    """

    operation: str
    inputs: tuple[Operation, ...] = ()
    rule: Rule | None = None
    non_negative: bool = False
    bounds: Tensor | None = None
    scale: Scale | None = None
    place: tuple[str, str] = ("", "")
    readers: int = 0


@dataclass(frozen=True)
class Context:
    """What a handler receives in addition to the arguments of the operation.

    Args:
        run: computes the operation out of place.
        sources: the tensors among the arguments that depend on the images, as ``node.inputs``.
        output: what it returned.
    """

    node: Operation
    run: Callable[..., Any]
    sources: list[Tensor]
    output: Tensor
    winners: Tensor | None
    scheme: Bounds


def _convolution(  # noqa: PLR0913 - the signature of `conv2d`
    context: Context,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Rule | None:
    bounds = context.node.inputs[0].bounds
    if isinstance(padding, str) or (bounds is not None and groups > 1):
        return None
    if bounds is not None and context.scheme == "scalar":
        bounds = torch.stack(
            [torch.full_like(plane, value) for plane, value in zip(bounds, _SCALAR_BOUNDS, strict=True)]
        )
    operator = ConvolutionMap(_pair(stride), _pair(padding), _pair(dilation), groups)
    return _weighted(context, operator, input, weight, bounds)


def _linear(context: Context, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Rule | None:
    return _weighted(context, LinearMap(), input, weight, None)


def _weighted(
    context: Context, operator: ConvolutionMap | LinearMap, x: Tensor, weight: Tensor, bounds: Tensor | None
) -> Rule | None:
    if len(context.sources) > 1 or x is not context.sources[0]:
        return None
    non_negative = context.node.inputs[0].non_negative
    return Weighted(x, operator, Filters(weight), non_negative, bounds, ladder=context.scheme == "channel")


def _batch_norm(  # noqa: PLR0913 - the signature of `batch_norm`
    context: Context,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Rule | None:
    if training or running_var is None:
        return None
    context.node.scale = (running_var, weight, eps)
    return passed


def _activation(context: Context, *args: Any, **options: Any) -> Rule:
    context.node.non_negative = True
    return passed


def _signed_activation(context: Context, *args: Any, **options: Any) -> Rule:
    return passed


def _softmax(context: Context, input: Tensor, dim: int | None = None, *args: Any, **options: Any) -> Rule | None:
    context.node.non_negative = True
    return passed if dim == 1 else None


def _hardtanh(context: Context, input: Tensor, min_val: float = -1.0, *args: Any, **options: Any) -> Rule:
    context.node.non_negative = min_val >= 0
    return passed


def _same_values(context: Context, *args: Any, **options: Any) -> Rule:
    node = context.node
    node.non_negative, node.bounds = node.inputs[0].non_negative, node.inputs[0].bounds
    return passed


def _layout(context: Context, input: Tensor, *args: Any, **options: Any) -> Rule:
    context.node.non_negative = context.node.inputs[0].non_negative
    return partial(reshaped, shape=input.shape)


def _pointwise(context: Context, x: Any, other: Any, **options: Any) -> Rule | None:
    """Sum of two tensors, or x with a constant added, subtracted, multiplied or divided."""
    node = context.node
    if options or any(tensor.shape != context.output.shape for tensor in context.sources):
        return None
    if len(context.sources) == 2:
        node.non_negative = all(source.non_negative for source in node.inputs)
        return Residual(x, other) if node.operation.startswith("add") else None
    if x is not context.sources[0]:
        return None
    if node.inputs[0].bounds is not None:
        rescaled = context.run(node.inputs[0].bounds, other)
        node.bounds = rescaled if rescaled.shape == node.inputs[0].bounds.shape else None
    return passed


def _max_pool(  # noqa: PLR0913 - the signature of `max_pool2d`
    context: Context,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Rule | None:
    if context.winners is None:
        return None
    context.node.non_negative = context.node.inputs[0].non_negative
    window = (kernel_size, kernel_size if stride is None else stride, padding, dilation)
    return MaxPool(context.winners, input.shape, (*(list(_pair(value)) for value in window), ceil_mode))


def _average_pool(  # noqa: PLR0913 - the signature of `avg_pool2d`
    context: Context,
    input: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Rule:
    context.node.non_negative = context.node.inputs[0].non_negative
    window = (kernel_size, kernel_size if stride is None else stride, padding)
    rest = (ceil_mode, count_include_pad, divisor_override)
    return AveragePool.of(input, context.output, (*(list(_pair(value)) for value in window), *rest))


def _adaptive_average_pool(context: Context, input: Tensor, output_size: Any) -> Rule:
    context.node.non_negative = context.node.inputs[0].non_negative
    return AveragePool.of(input, context.output, None)


def _crop(context: Context, input: Tensor, index: Any) -> Rule | None:
    """A cut along the axes, ``x[:, :, :h, :w]``; no other index."""
    parts = index if isinstance(index, tuple) else (index,)
    if not all(isinstance(part, slice) for part in parts):
        return None
    if context.output.shape == input.shape:
        return _same_values(context)
    context.node.non_negative = context.node.inputs[0].non_negative
    return partial(uncropped, index=parts, x=input)


def _concatenate(context: Context, tensors: Sequence[Tensor], dim: int = 0) -> Rule | None:
    if len(context.sources) < len(tensors):
        return None
    context.node.non_negative = all(source.non_negative for source in context.node.inputs)
    return partial(split, sizes=[tensor.shape[dim] for tensor in tensors], dim=dim)


HANDLERS: dict[str, Callable[..., Rule | None]] = {
    "conv2d": _convolution,
    "linear": _linear,
    "batch_norm": _batch_norm,
    **dict.fromkeys(("relu", "relu_", "relu6", "sigmoid"), _activation),
    "tanh": _signed_activation,
    "hardtanh": _hardtanh,
    "softmax": _softmax,
    **dict.fromkeys(("contiguous", "clone"), _same_values),
    **dict.fromkeys(("flatten", "reshape", "view", "unflatten"), _layout),
    **dict.fromkeys(("add", "add_", "sub", "mul", "div"), _pointwise),
    "max_pool2d": _max_pool,
    "avg_pool2d": _average_pool,
    "adaptive_avg_pool2d": _adaptive_average_pool,
    "__getitem__": _crop,
    **dict.fromkeys(("cat", "concat", "concatenate"), _concatenate),
}
