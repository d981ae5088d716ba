"""The rules of AttnLRP as gradients: the model's own operations, with the same values and other derivatives.

A rule that gives input i the relevance R_i = x_i Σ_j c_ij R_j / y_j takes R / y backwards as a gradient with c_ij in
place of ∂y_j/∂x_i. The ε-rule of linear operations and sums, the Taylor rule of softmax and the identity rule of ReLU
are the plain gradient; every other rule is a term with the derivatives c_ij, which is given the value that the
operation had.

Source: Achtibat et al. (2024), "AttnLRP: attention-aware layer-wise relevance propagation for transformers"; as
gradients: Arras et al. (2025), "Close look at decomposition-based XAI-methods for transformer language models".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any, NoReturn, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from protometry.explanations.relevance.recorder import PlacedMode, tensors_in

TINY = 1e-12  # what counts as zero

Rule = Callable[..., Tensor | None]


class NoRuleError(ValueError):
    """Relevance has arrived at an operation without a rule."""


class _WithValue(torch.autograd.Function):
    """The derivatives of one tensor, the values of another."""

    @staticmethod
    def forward(context: Any, term: Tensor, value: Tensor) -> Tensor:
        """A copy of the value, so that it may be changed in place."""
        return value.clone()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Everything to the term."""
        return gradients[0], None


def quotient(dividend: Tensor, divisor: Tensor) -> Tensor:
    """A constant; 0 where the divisor is zero."""
    dividend, divisor = dividend.detach(), divisor.detach()
    zero = divisor.abs() <= TINY
    return (dividend / divisor.masked_fill(zero, 1)).masked_fill(zero, 0)


# -- rules: from an operation's output, with its plain gradient, and its arguments to a term with the derivatives c ----
def _layer(
    gamma: float, function: Callable[..., Tensor], output: Tensor, /, input: Tensor, weight: Tensor,
    bias: Tensor | None = None, *args: Any, **options: Any,
) -> Tensor | None:  # fmt: skip
    """γ-rule (0: ε-rule): contributions with the sign s of the output, (Σ x w + s Σ |x| |w|) / 2, count 1 + γ times."""
    if any(tensor.requires_grad for tensor in tensors_in((weight, bias))):
        return None
    if gamma == 0:
        return output
    sizes = function(input.abs(), weight.abs(), None if bias is None else bias.abs(), *args, **options)
    total = (1 + gamma / 2) * output + gamma / 2 * output.detach().sign() * sizes
    return total * quotient(output, total)


def _folded(
    rule: Rule, scale: Tensor, shift: Tensor, /, input: Tensor, weight: Tensor, bias: Tensor | None = None,
    *args: Any, **options: Any,
) -> Tensor | None:  # fmt: skip
    """The term of a convolution whose channels are then scaled and shifted."""
    weight = weight * scale.view(-1, 1, 1, 1)
    bias = shift if bias is None else bias * scale + shift
    return rule(torch.conv2d(input, weight, bias, *args, **options), input, weight, bias, *args, **options)


def _identity(output: Tensor, /, input: Tensor, *args: Any, **options: Any) -> Tensor | None:
    """All to the one input (equation 9): c = y / x."""
    others = any(tensor.requires_grad for tensor in tensors_in((*args, *options.values())))
    return None if others else input * quotient(output, input)


def _product(output: Tensor, /, *factors: Any, **options: Any) -> Tensor:
    """Uniform (propositions 3.2 and 3.3): the same to each of the factors that depend on the images."""
    dependent = sum(factor.requires_grad for factor in tensors_in((*factors, *options.values())))
    return output if dependent == 1 else output / dependent


def _added_product(output: Tensor, /, input: Tensor, *factors: Any, **options: Any) -> Tensor | None:
    """Linear unless both factors depend on the images."""
    return output if sum(factor.requires_grad for factor in tensors_in(factors)) < 2 else None


def _division(output: Tensor, /, input: Any, other: Any, **options: Any) -> Tensor:
    """Linear, since what divides is a constant, as standard deviations are (proposition 3.4)."""
    constant = not isinstance(other, Tensor) or not other.requires_grad
    return output if constant else torch.div(input, other.detach(), **options)


def _divisor(output: Tensor, /, *args: Any, **options: Any) -> Tensor:
    """A constant."""
    return output.detach()


def _normalized(x: Tensor, dims: tuple[int, ...], eps: float, weight: Tensor | None) -> Tensor:
    """Divided by a constant standard deviation (proposition 3.4), or root mean square if not centred."""
    x = x * (x.detach().square().mean(dims, keepdim=True) + eps).rsqrt()
    return x if weight is None else x * weight


def _layer_norm(
    output: Tensor, /, input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    dims = tuple(range(-len(normalized_shape), 0))
    return _normalized(input - input.mean(dims, keepdim=True), dims, eps, weight)


def _rms_norm(
    output: Tensor, /, input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:  # fmt: skip
    dims = tuple(range(-len(normalized_shape), 0))
    return _normalized(input, dims, torch.finfo(input.dtype).eps if eps is None else eps, weight)


def _group_norm(
    output: Tensor, /, input: Tensor, num_groups: int, weight: Tensor | None = None,
    bias: Tensor | None = None, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    groups = input.reshape(len(input), num_groups, -1)
    normalized = _normalized(groups - groups.mean(2, keepdim=True), (2,), eps, None).view_as(input)
    return normalized if weight is None else normalized * weight.view(-1, *[1] * (input.ndim - 2))


def _softmax(output: Tensor, /, input: Tensor, dim: int | None = None, *args: Any, **options: Any) -> Tensor:
    """Taylor (proposition 3.1), which is the plain gradient; identity over the channels of a grid, as in PIPNet."""
    return input * quotient(output, input) if dim == 1 and input.ndim == 4 else output


def _attention(  # noqa: PLR0913 - the signature of `scaled_dot_product_attention`
    output: Tensor, /, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Tensor | None:  # fmt: skip
    """A V with A = softmax(s Q Kᵀ + mask), both products uniform."""
    if is_causal or enable_gqa:
        return None
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = _WithValue.apply(scores / 2, scores)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    mixed: Tensor = scores.softmax(-1) @ value
    return mixed / 2


def _opened(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same code, opened so that a mode sees its operations one by one."""
    code = cast(FunctionType, function)
    checks = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    names = code.__globals__ | dict.fromkeys(checks, lambda *_: False)
    opened = FunctionType(code.__code__, names, code.__name__, code.__defaults__)
    opened.__kwdefaults__ = code.__kwdefaults__
    return opened


OPENED = {function: _opened(function) for function in (F.multi_head_attention_forward, F.normalize)}
RULES: dict[str, Rule] = {
    **dict.fromkeys((
        "gelu", "silu", "mish", "hardswish", "hardsigmoid", "hardtanh", "relu6", "sigmoid", "logsigmoid", "tanh",
        "softplus", "softsign", "elu", "selu", "celu", "clamp", "clamp_min", "clamp_max", "pow", "square", "sqrt",
    ), _identity),
    **dict.fromkeys(("mul", "matmul", "bmm", "einsum"), _product),
    **dict.fromkeys(("addcmul", "addmm", "addbmm", "baddbmm"), _added_product),
    "div": _division,
    **dict.fromkeys(("reciprocal", "rsqrt", "__rdiv__"), _divisor),
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "scaled_dot_product_attention": _attention,
}  # fmt: skip
ATTENTION = ("scaled_dot_product_attention", "matmul", "bmm", "einsum")
PLAIN = {  # operations whose gradient c needs no change: they are linear, choose among values, or scale with them
    "add", "sub", "__rsub__", "neg", "sum", "mean", "cumsum", "abs", "norm", "linalg_norm", "linalg_vector_norm",
    "relu", "leaky_relu", "prelu", "threshold", "max", "min", "amax", "amin", "maximum", "minimum",
    "avg_pool2d", "adaptive_avg_pool2d", "max_pool2d", "adaptive_max_pool2d", "interpolate",
    "cat", "concat", "concatenate", "stack", "split", "chunk", "unbind", "tensor_split", "__getitem__", "__setitem__",
    "select", "narrow", "index_select", "gather", "take_along_dim", "where", "masked_fill", "pad", "roll", "flip",
    "flatten", "unflatten", "reshape", "view", "view_as", "reshape_as", "permute", "transpose", "swapaxes", "movedim",
    "t", "squeeze", "unsqueeze", "expand", "expand_as", "repeat", "repeat_interleave", "unfold", "fold", "rot90",
    "pixel_shuffle", "pixel_unshuffle", "broadcast_to", "meshgrid", "tile", "contiguous", "clone", "to", "float",
    "type", "type_as", "copy", "dropout", "dropout1d", "dropout2d", "dropout3d", "__get__", "requires_grad",
}  # fmt: skip


class GradientRules(PlacedMode):
    """Gives every operation on tensors that depend on the images the derivatives of its rule.

    Dependence is ``requires_grad``, which parameters must not have.

    Args:
        images: a leaf that requires a gradient.
        gamma_conv: γ of convolutions.
        gamma_linear: γ of linear layers.

    Attributes:
        pixels: the normalised images, the leaf with which the graph begins.
        known: tensors that come from operations seen here.
        attention: whether a gradient has come back through a matrix product of two tensors that depend on the images.
    """

    def __init__(self, images: Tensor, gamma_conv: float, gamma_linear: float) -> None:
        super().__init__()
        self.pixels, self.attention = images, False
        self._were_read = False
        self.known = WeakTensorKeyDictionary({images: True})
        self._convolutions = WeakTensorKeyDictionary()
        self._rules: dict[str, Rule] = {
            **RULES,
            "conv1d": partial(_layer, gamma_conv, torch.conv1d),
            "conv2d": partial(_layer, gamma_conv, torch.conv2d),
            "linear": partial(_layer, gamma_linear, F.linear),
            "batch_norm": self._batch_norm,
        }

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run one operation and give its output the derivatives of its rule."""
        options = dict(kwargs or {})
        sources = [tensor for tensor in tensors_in((*args, *options.values())) if tensor.requires_grad]
        if not sources:
            return func(*args, **options)
        if func in OPENED:
            with self:
                return OPENED[func](*args, **options)
        name = func.__name__ if func.__name__.startswith("__") else func.__name__.removesuffix("_")
        unseen = any(tensor not in self.known for tensor in sources)
        rule = self._rules.get(name)
        in_place = rule is not None and (name != func.__name__ or options.pop("inplace", False))
        target = args[0] if in_place else None  # overwritten in the end, so that rules see its old value
        if target is not None:
            args = target.clone(), *args[1:]
            func = func if name == func.__name__ else getattr(torch, name)
        output = func(*args, **options)
        if self._rescales_pixels(name, sources, output):
            output = self.pixels
        elif unseen or (rule is None and name not in PLAIN):
            self._refuse(f"unseen, before {name}" if unseen else name, output)
        elif rule is not None:
            output = self._ruled(rule, name, output, args, options)
        if name == "conv2d":
            self._convolutions[output] = output._version, args, options
        if target is not None:
            output = target.copy_(output)
        self.known.update({tensor: True for tensor in tensors_in((output,)) if tensor.requires_grad})
        return output

    def _ruled(self, rule: Rule, name: str, output: Tensor, args: Sequence[Any], options: Mapping[str, Any]) -> Tensor:
        """The output with the derivatives of its rule, unchanged if no relevance may come back."""
        term = rule(output, *args, **options)
        if term is None:
            self._refuse(name, output)
        elif term is not output:
            output = _WithValue.apply(term, output.detach())
            if name in ATTENTION:
                output.register_hook(self._note_attention)  # type: ignore[no-untyped-call]
        return output

    def _rescales_pixels(self, name: str, sources: list[Tensor], output: Any) -> bool:
        """Whether an operation is part of the normalisation; the graph then begins behind it."""
        if not isinstance(output, Tensor) or not output.requires_grad or all(x is not self.pixels for x in sources):
            return False
        if output is self.pixels:
            return True
        rescales = name in ("add", "sub", "mul", "div") and len(sources) == 1 and output.shape == self.pixels.shape
        if rescales and not self._were_read:
            self.pixels = output.detach().requires_grad_()
            return True
        self._were_read = True
        return False

    def _batch_norm(  # noqa: PLR0913 - the signature of `batch_norm`
        self, output: Tensor, /, input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
        weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False, momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor | None:  # fmt: skip
        """Linear; part of the convolution that it follows."""
        if training or running_mean is None or running_var is None:
            return None
        if input not in self._convolutions:
            return output
        version, args, options = self._convolutions[input]
        if version != input._version:
            return output
        scale = (running_var + eps).rsqrt() if weight is None else (running_var + eps).rsqrt() * weight
        shift = -running_mean * scale if bias is None else bias - running_mean * scale
        return _folded(self._rules["conv2d"], scale, shift, *args, **options)

    def _note_attention(self, gradient: Tensor) -> None:
        self.attention = True

    def _refuse(self, name: str, output: Any) -> None:
        """Let no relevance come back from an output."""
        for tensor in tensors_in((output,)):
            if tensor.requires_grad:
                tensor.register_hook(partial(_stop, name, *self.place))  # type: ignore[no-untyped-call]


def _stop(name: str, path: str, kind: str, gradient: Tensor) -> NoReturn:
    raise NoRuleError(f"relevance cannot pass {path!r} ({kind}, operation {name!r})")
