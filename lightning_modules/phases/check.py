"""Checks of a plan for its model, which report all problems before any work starts."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from protometry.lightning_modules.phases.phase import FIT_HEAD, Phase

Parameters = Mapping[str, list[nn.Parameter]]
Built = tuple[torch.optim.Optimizer, LRScheduler | None]


def problems_of(
    phases: Sequence[Phase],
    build: Callable[[int, Parameters, int], Built],
    groups: Collection[str],
    losses: Collection[str],
    actions: Collection[str],
    steps_per_epoch: int,
) -> list[str]:
    """All problems, one sentence each."""
    problems = []
    for index, phase in enumerate(phases):
        bn = [] if isinstance(phase.bn, str) else phase.bn
        for field, used, known in (
            ("trainable", phase.trainable, groups),
            ("weight_decay", phase.weight_decay, groups),
            ("bn", bn, groups),
            ("losses", phase.losses, losses),
            ("on_enter", phase.on_enter, actions),
            ("on_exit", phase.on_exit, actions),
        ):
            if unknown := [name for name in used if name not in known]:
                problems.append(
                    f"Expected `phases.{phase.name}.{field}` to use only {sorted(known)}, but got {unknown}."
                )
        if not phase.losses:
            problems.append(f"Expected `phases.{phase.name}.losses` to name some of {sorted(losses)}, but got none.")
        try:
            _try_out(phase, partial(build, index), steps_per_epoch)
        except Exception as error:  # torch's optimisers and schedulers raise any type
            said = f"Expected `phases.{phase.name}` to have an optimizer and a scheduler that work, but {error}."
            problems.append(str(error) if str(error).startswith("Expected `phases") else said)
    if len(solved := [phase.name for phase in phases if FIT_HEAD in phase.on_enter]) > 1:
        problems.append(
            f"Expected one phase to have {FIT_HEAD!r} in `on_enter`, because units that it leaves without a weight "
            f"stay inactive, but got {solved}. Leave it to the last of them."
        )
    return [*problems, *_unequal_with_one_key(phases)]


def _try_out(phase: Phase, build: Callable[[Parameters, int], Built], steps_per_epoch: int) -> None:
    """Run the optimiser and the scheduler of a phase on dummy parameters."""
    groups = {name: [nn.Parameter(torch.zeros(()))] for name in phase.trainable}
    optimizer, scheduler = build(groups, steps_per_epoch)
    for (parameter,) in groups.values():
        parameter.grad = torch.zeros(())  # without a gradient, an optimiser does nothing
    optimizer.step(lambda: 0.0)
    if phase.scheduler is None or scheduler is None:
        return
    length = phase.epochs * (1 if phase.scheduler.per == "epoch" else steps_per_epoch)
    if (total := getattr(scheduler, "total_steps", length)) < length:
        raise ValueError(f"its scheduler has {total} steps for the {length} of the phase; leave `total_steps` out")
    for _ in range(phase.epochs if phase.scheduler.per == "epoch" else 1):
        scheduler.step()
        rates = [float(group["lr"]) for group in optimizer.param_groups]
        if not all(math.isfinite(rate) and rate >= 0 for rate in rates):
            raise ValueError(f"its learning rates become {rates}")


def _unequal_with_one_key(phases: Iterable[Phase]) -> list[str]:
    """Phases that share an optimiser train the same groups in the same way, or a later one unfreezes more of them."""
    first: dict[str, Phase] = {}
    problems = []
    for phase in phases:
        if (key := phase.optimizer.key) is None:
            continue
        other = first.get(key, phase)
        unfreezes = set(other.trainable) < set(phase.trainable)
        first[key] = phase if unfreezes else other
        if not unfreezes and list(other.trainable) != list(phase.trainable):
            problems.append(
                f"Expected the phases with optimizer key {key!r} to train the same groups, but "
                f"{other.name!r} trains {list(other.trainable)} and {phase.name!r} {list(phase.trainable)}."
            )
            continue
        for name in ("optimizer",) if unfreezes else ("trainable", "weight_decay", "optimizer", "scheduler"):
            if (value := getattr(phase, name)) != getattr(other, name):
                problems.append(
                    f"Expected the phases with optimizer key {key!r} to have equal `{name}`, because they share "
                    f"one optimiser, but {other.name!r} has {getattr(other, name)} and {phase.name!r} has {value}. "
                    f"Change `phases.{other.name}.{name}` and `phases.{phase.name}.{name}` alike, or give one of them "
                    "another `optimizer.key`."
                )
    return problems
