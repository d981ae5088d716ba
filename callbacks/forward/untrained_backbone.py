"""Random weights for the backbone of a model, to see what its explanations owe to training."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from protometry.lightning_modules.backbones.sections import blocks, last_blocks
from protometry.lightning_modules.contract import InterpretableModel


def backbone_parameters(model: InterpretableModel) -> list[nn.Parameter]:
    """The parameters of the groups ``backbone...`` and ``stem``."""
    groups = model.parameter_groups().items()
    return [parameter for name, group in groups if name.startswith(("backbone", "stem")) for parameter in group]


def backbone_stages(model: InterpretableModel) -> int:
    """How many stages of a model's backbone can be drawn again; 0 for a backbone of another kind."""
    net = getattr(getattr(model, "backbone", None), "net", None)
    return len(blocks(net)) if net is not None else 0


class UntrainedBackbone:
    """Within a ``with`` block, the layers of a model's backbone have random weights; afterwards they have their own.

    Weights are normal with variance 2 / fan-in (He et al. 2015), scales 1 and biases 0, and running means and variances
    of normalisation layers 0 and 1. They are drawn on the CPU, alike on every device and in every process. Tensors are
    exchanged, so that the model is the same bit for bit afterwards.

    Args:
        seed: of the weights.
        stages: how many of the last stages are drawn again, with what follows them in the backbone; None for all of it.
    """

    def __init__(self, model: InterpretableModel, seed: int, stages: int | None = None) -> None:
        generator = torch.Generator().manual_seed(seed)
        left = {id(parameter) for parameter in backbone_parameters(model)}
        if stages is not None:
            left &= {id(parameter) for parameter in last_blocks(cast(Any, model).backbone.net, stages)}
        self._pairs: list[tuple[Tensor, Tensor]] = []
        with torch.inference_mode(False), torch.no_grad():  # explainers differentiate through them
            for module in cast(nn.Module, model).modules():
                own = {name: each for name, each in module.named_parameters(recurse=False) if id(each) in left}
                left -= {id(parameter) for parameter in own.values()}  # what two modules share is drawn once
                self._pairs += [(parameter, _drawn(name, parameter, generator)) for name, parameter in own.items()]
                statistics: Any = module
                if own and getattr(module, "running_var", None) is not None:
                    self._pairs.append((statistics.running_mean, torch.zeros_like(statistics.running_mean)))
                    self._pairs.append((statistics.running_var, torch.ones_like(statistics.running_var)))

    def __enter__(self) -> None:
        self._swap()

    def __exit__(self, *_: object) -> None:
        self._swap()

    def _swap(self) -> None:
        for one, other in self._pairs:
            one.data, other.data = other.data, one.data


def _drawn(name: str, parameter: Tensor, generator: torch.Generator) -> Tensor:
    if parameter.ndim < 2:
        return torch.full_like(parameter, 0.0 if name.endswith("bias") else 1.0).detach()
    deviation = math.sqrt(2 / parameter[0].numel())
    return (deviation * torch.randn(parameter.shape, generator=generator)).to(parameter.detach())
