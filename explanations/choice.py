"""The explainer that fits a model, and its name and options in words."""

from __future__ import annotations

import hashlib
from typing import Any

from torch import Tensor

from protometry.explanations.explainer import Explainer, Kind
from protometry.explanations.relevance import PRP, AttnLRP
from protometry.explanations.upsample import Upsample
from protometry.lightning_modules.contract import InterpretableModel


def choose_explainer(asked: Explainer | None, model: InterpretableModel) -> Explainer:
    """The requested explainer, else PRP where it supports the model, AttnLRP behind attention, else upsampled maps.

    Other networks that only AttnLRP supports keep upsampled maps: their biases absorb nearly all relevance (measured:
    99 % in EfficientNet-Lite0 with ImageNet weights), although what arrives lies on the object.
    Units that are classes (BagNet) are explained by their own maps, which are all the evidence there is, each cell at
    the centre of what it sees; bilinear, since bicubic overshoots and would show evidence that no cell has.

    Raises:
        ValueError: if the requested explainer does not support the model.
    """
    if asked is None and model.units().kind == "class":
        return Upsample("bilinear", placement="geometry")
    if asked is None:
        if PRP().supports(model) is None:
            return PRP()
        return AttnLRP() if AttnLRP().finds_attention(model) else Upsample()
    if reason := asked.supports(model):
        raise ValueError(
            f"Expected argument `explainer` to support the model, but {reason}. Use one of "
            f"{', '.join(supporting(model, asked.explains))}."
        )
    return asked


def supporting(model: InterpretableModel, kinds: frozenset[Kind]) -> list[str]:
    """Import paths of this project's explainers, without the random control, of some kinds of targets of a model."""
    from protometry import explanations

    every = [getattr(explanations, name) for name in explanations.__all__]
    others = (Explainer, explanations.Random)
    known = [kind for kind in every if isinstance(kind, type) and issubclass(kind, Explainer) and kind not in others]
    return [k.__name__ for k in known if k.explains & kinds and k().supports(model) is None]


def description(explainer: Explainer) -> str:
    """Name and options, such as ``grad_cam(relu=False, mode=bilinear)``."""
    options = {name: value for name, value in vars(explainer).items() if not name.startswith("_")}
    return f"{explainer.key}({', '.join(f'{name}={_plain(value)}' for name, value in options.items())})"


def _plain(value: Any) -> str:
    """Equal for equal values, in this process and the next."""
    if isinstance(value, Tensor):
        numbers = value.flatten().tolist()
        few = [round(number, 6) for number in numbers]
        return str(few) if len(few) <= 3 else f"tensor {hashlib.sha256(repr(numbers).encode()).hexdigest()[:8]}"
    if isinstance(value, bool | int | float | str | list | tuple | dict | None):
        return str(value)
    return f"{type(value).__name__}({', '.join(f'{name}={_plain(part)}' for name, part in vars(value).items())})"
