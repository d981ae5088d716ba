"""Plans of training: ordered phases, their checks, and the optimiser and scheduler of each.

The warm-up, joint, projection and last-layer stages of ProtoPNet, the pretrain and train stages of PIPNet, the dense
and fine-tune stages of QPM are tables of one type.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from lightning_modules.phases.override import PhaseOverride, merged
from lightning_modules.phases.phase import Phase, SchedulerSpec

_EPOCH_COUNTS = {"step_size", "T_max", "T_0", "total_steps", "total_iters", "milestones"}


@dataclass(frozen=True)
class PhasePlan:
    """Ordered phases.

    Args:
        phases: at least one, with unique names.

    Example:
        >>> warm = Phase("warm", 2, {"addon": 3e-3}, {"cross_entropy": 1.0})
        >>> last = Phase("last", 3, {"head": 1e-4}, {"cross_entropy": 1.0}, on_enter=("project",))
        >>> plan = PhasePlan((warm, last))
        >>> plan.total_epochs, plan.locate(1), plan.locate(2)
        (5, (0, 1), (1, 0))
        >>> plan.override({"last": {"epochs": 1}, "warm": None}).total_epochs
        1
    """

    phases: tuple[Phase, ...]

    def __post_init__(self) -> None:
        names = [phase.name for phase in self.phases]
        if not names:
            raise ValueError("Expected argument `phases` to leave at least one phase to train, but got none.")
        if len(set(names)) < len(names):
            raise ValueError(f"Expected argument `phases` to have unique names, but got {names}.")

    @property
    def total_epochs(self) -> int:
        """Epochs of all phases together."""
        return sum(phase.length for phase in self.phases)

    def locate(self, epoch: int) -> tuple[int, int]:
        """The phase of an epoch.

        Args:
            epoch: 0-based epoch of the run.

        Returns:
            Index of the phase and epoch within it; epochs beyond the plan belong to the last phase.
        """
        for index, phase in enumerate(self.phases):
            if epoch < phase.length or index == len(self.phases) - 1:
                return index, epoch
            epoch -= phase.length
        raise AssertionError("a plan has phases")

    def ended(self, index: int, epochs: int) -> PhasePlan:
        """The same plan with one phase ended early; its schedulers keep the length that was planned.

        Args:
            index: the phase.
            epochs: how many epochs it lasted, at least 1.
        """
        changed = [replace(p, ended_after=epochs) if i == index else p for i, p in enumerate(self.phases)]
        return PhasePlan(tuple(changed))

    def scaled(self, factor: float) -> PhasePlan:
        """The same plan with epochs and epoch-wise scheduler steps multiplied by ``factor``, at least 1 each."""
        return PhasePlan(
            tuple(
                replace(
                    phase,
                    epochs=max(1, round(phase.epochs * factor)),
                    scheduler=phase.scheduler and _scaled(phase.scheduler, factor),
                )
                for phase in self.phases
            )
        )

    def override(self, changes: Mapping[str, PhaseOverride | None]) -> PhasePlan:
        """Change, append or remove phases.

        Args:
            changes: phase name -> fields to change, or None to remove the phase. A name the plan does not have appends
                a phase and must state ``epochs``, ``trainable`` and ``losses``.

        Raises:
            ValueError: for a new phase that is incomplete (often a misspelt name), the removal of an unknown phase or
                key, or an unknown field.
        """
        phases = {phase.name: phase for phase in self.phases}
        for name, change in changes.items():
            if change is None and name in phases:
                del phases[name]
            elif change is None:
                raise ValueError(f"Expected `phases.{name}` to be one of {list(phases)} to be removed.")
            elif name in phases:
                phases[name] = merged(phases[name], change)
            elif {"epochs", "trainable", "losses"} <= set(change):
                phases[name] = merged(Phase(name, change["epochs"], {"": 0.0}, {}), change)
            else:
                raise ValueError(
                    f"Expected `phases.{name}` to be one of {list(phases)}, or a new phase that states epochs, "
                    f"trainable and losses, but got only {sorted(change)}."
                )
        return PhasePlan(tuple(phases.values()))

    def check(self, groups: Collection[str], losses: Collection[str], actions: Collection[str]) -> None:
        """Refuse names the model does not have, before any work starts.

        Args:
            groups: parameter groups of the model.
            losses: loss terms of the model.
            actions: actions that can be run.

        Raises:
            ValueError: naming the phase, the field and what is known.
        """
        for phase in self.phases:
            bn = [] if isinstance(phase.bn, str) else phase.bn
            for place, used, known in (
                ("trainable", phase.trainable, groups),
                ("weight_decay", phase.weight_decay, groups),
                ("bn", bn, groups),
                ("losses", phase.losses, losses),
                ("on_enter", phase.on_enter, actions),
                ("on_exit", phase.on_exit, actions),
            ):
                if unknown := [name for name in used if name not in known]:
                    raise ValueError(
                        f"Expected `phases.{phase.name}.{place}` to use only {sorted(known)}, but got {unknown}."
                    )
            _named(torch.optim, phase.optimizer.name, f"phases.{phase.name}.optimizer")
            if phase.scheduler:
                _named(torch.optim.lr_scheduler, phase.scheduler.name, f"phases.{phase.name}.scheduler")
        self._check_shared_optimizers()

    def _check_shared_optimizers(self) -> None:
        first: dict[str, Phase] = {}
        for phase in self.phases:
            if (key := phase.optimizer.key) is None:
                continue
            other = first.setdefault(key, phase)
            if list(other.trainable) != list(phase.trainable):
                raise ValueError(
                    f"Expected the phases with optimizer key {key!r} to train the same groups, but "
                    f"{other.name!r} trains {list(other.trainable)} and {phase.name!r} {list(phase.trainable)}."
                )
            for name in ("trainable", "weight_decay", "optimizer", "scheduler"):
                if (value := getattr(phase, name)) != getattr(other, name):
                    raise ValueError(
                        f"Expected the phases with optimizer key {key!r} to have equal `{name}`, because they share "
                        f"one optimiser, but {other.name!r} has {getattr(other, name)} and {phase.name!r} has {value}."
                    )

    def build(
        self, index: int, groups: Mapping[str, list[nn.Parameter]], steps_per_epoch: int
    ) -> tuple[torch.optim.Optimizer, LRScheduler | None]:
        """The optimiser and scheduler of one phase.

        Args:
            index: the phase.
            groups: parameter groups of the model.
            steps_per_epoch: optimiser steps in an epoch, for schedulers that step per batch.

        Returns:
            An optimiser with one named parameter group per trainable group, and its scheduler or None.
        """
        phase = self.phases[index]
        options = [
            {"params": groups[name], "lr": lr, "weight_decay": phase.weight_decay.get(name, 0.0), "name": name}
            for name, lr in phase.trainable.items()
        ]
        optimizer = _named(torch.optim, phase.optimizer.name, "optimizer")(options, **phase.optimizer.kwargs)
        if phase.scheduler is None:
            return optimizer, None
        kind = _named(torch.optim.lr_scheduler, phase.scheduler.name, "scheduler")
        key = phase.optimizer.key
        length = sum(p.epochs for p in self.phases if p is phase or (key is not None and p.optimizer.key == key))
        length *= steps_per_epoch if phase.scheduler.per == "step" else 1
        known = inspect.signature(kind).parameters
        automatic = {"total_steps": length, "T_max": length, "max_lr": list(phase.trainable.values())}
        kwargs = {name: value for name, value in automatic.items() if name in known} | phase.scheduler.kwargs
        return optimizer, cast(LRScheduler, kind(optimizer, **kwargs))


class PhasedModule(Protocol):
    """What walking a plan needs of a model beyond the contract."""

    actions: tuple[str, ...]
    phase_index: int

    def enter_phase(self, index: int) -> None:
        """Freeze and unfreeze parameters and set modes for one phase."""
        ...

    def end_phase(self, index: int, epochs: int) -> None:
        """Let a phase of the plan last so many epochs only."""
        ...

    def apply_modes(self) -> None:
        """Set train and evaluation modes again, as the phase wants them."""
        ...

    def loss_terms(self) -> dict[str, Any]:
        """Loss terms by name."""
        ...


def _named(module: Any, name: str, place: str) -> Any:
    """A class of a torch module by name."""
    found = getattr(module, name, None)
    if not inspect.isclass(found):
        raise ValueError(f"Expected `{place}.name` to be a class of {module.__name__}, but got {name!r}.")
    return found


def _scaled(scheduler: SchedulerSpec, factor: float) -> SchedulerSpec:
    if scheduler.per == "step":
        return scheduler
    kwargs = dict(scheduler.kwargs)
    for name in _EPOCH_COUNTS & kwargs.keys():
        value = kwargs[name]
        several = isinstance(value, list | tuple)
        scaled = [max(1, round(v * factor)) for v in (value if several else [value])]
        kwargs[name] = scaled if several else scaled[0]
    return replace(scheduler, kwargs=kwargs)
