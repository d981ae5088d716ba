"""What a model of one's own lacks, said before it is trained; models of this project are tested instead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from protometry.lightning_modules.contract import ModelOutput, UnitTable, logits_of
from protometry.run_folder.command_line.messages import ListError

CLOSE = 1e-3  # relative difference of sums in another order, at most


def check_contract(model: Any) -> None:
    """Refuse a model that leaves parameters out, or whose outputs, units and head do not belong together.

    Args:
        model: an :class:`.InterpretableModule`; it sees two images of noise, in evaluation mode.

    Raises:
        ValueError: with everything that is wrong, a line each.

    Example:
        >>> from protometry.lightning_modules import Classifier
        >>> check_contract(Classifier(num_classes=4, image_size=(32, 32)))
    """
    refuse([*_of_groups(model), *_of_outputs(model)], model)


def check_groups(model: Any) -> None:
    """Refuse a model some of whose parameters are in no group, or in several.

    Raises:
        ValueError: with their names.
    """
    refuse(list(_of_groups(model)), model)


def refuse(problems: list[str], model: Any) -> None:
    """Raise one error with all problems, if there are any.

    Raises:
        ValueError: with a line for each.
    """
    if problems:
        lines = "".join(f"\n  {text}." for text in problems)
        raise ListError(
            f"Expected {type(model).__name__} to keep the contract of models, but got:{lines}\n"
            "docs/add_a_model.md shows a whole model."
        )


def _of_groups(model: Any) -> Iterator[str]:
    """A parameter that is in no group would never be trained."""
    groups = model.parameter_groups()
    count = Counter(id(parameter) for members in groups.values() for parameter in members)
    named = list(model.named_parameters())
    if left_out := [name for name, parameter in named if parameter.requires_grad and not count[id(parameter)]]:
        yield f"`parameter_groups` leaves out {_some(left_out)}, which no phase would train; add them to a group"
    if twice := [name for name, parameter in named if count[id(parameter)] > 1]:
        yield f"`parameter_groups` has {_some(twice)} more than once; leave them in one group"


def _of_outputs(model: Any) -> Iterator[str]:
    modes = [(module, module.training) for module in model.modules()]
    device = next(model.parameters()).device
    noise = torch.rand(2, 3, *model.image_size, generator=torch.Generator().manual_seed(0)).to(device)
    try:
        with torch.no_grad():
            output, table = model.eval()(noise), model.units()
            if isinstance(output, ModelOutput):
                shapes = list(_of_shapes(model, output, table))
                yield from shapes or [*_of_pool(output, table), *_of_head(model, output)]
            else:
                yield f"`forward` returns {type(output).__name__}, not ModelOutput"
    finally:
        for module, training in modes:
            module.training = training


def _of_shapes(model: Any, output: ModelOutput, table: UnitTable) -> Iterator[str]:
    units, classes, (h, w) = len(table.active), model.num_classes, model.geometry.grid
    for name, tensor, letters, expected in (
        ("`forward`: `logits`", output.logits, "(B, K)", (2, classes)),
        ("`forward`: `scores`", output.scores, "(B, U)", (2, units)),
        ("`forward`: `maps`", output.maps, "(B, U, h, w)", (2, units, h, w)),
        ("`units`: `owner`", table.owner, "(U, K)", (units, classes)),
        ("`units`: `weight`", table.weight, "(K, U)", (classes, units)),
    ):
        if tensor is not None and tuple(tensor.shape) != expected:
            yield f"{name} has the shape {tuple(tensor.shape)}, not {letters} = {expected}"


def _of_pool(output: ModelOutput, table: UnitTable) -> Iterator[str]:
    """Where scores are a pool of maps, it is the one that the units name; a pool of one's own has the nearest name."""
    peak, mean = output.maps.amax((2, 3)), output.maps.mean((2, 3))
    pools = {"max": peak, "mean": mean, "focal": peak - mean, "sum": output.maps.sum((2, 3))}
    given = output.extras.get("pooled", output.scores)
    fitting = [name for name, pooled in pools.items() if _close(given[:, table.active], pooled[:, table.active])]
    if table.pool not in pools:
        yield f"`units`: `pool` is {table.pool!r}, not one of {', '.join(pools)}"
    elif fitting and table.pool not in fitting:
        yield f"`units`: `pool` is {table.pool!r}, but the scores are the {fitting[0]!r} of the maps"


def _of_head(model: Any, output: ModelOutput) -> Iterator[str]:
    made = logits_of(model, output.scores, output.extras.get("context"))
    if tuple(made.shape) != tuple(output.logits.shape):
        yield f"`head` returns the shape {tuple(made.shape)}, not (B, K) = {tuple(output.logits.shape)}"
    elif not _close(made + output.extras.get("residual", torch.zeros_like(made)), output.logits):
        yield "`head` does not make the logits of `forward` from its scores"


def _close(first: Tensor, second: Tensor) -> bool:
    largest = float(second.abs().max()) if second.numel() else 0.0
    return torch.allclose(first, second, rtol=CLOSE, atol=CLOSE * largest)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(f"`{name}`" for name in names[:3]) + more
