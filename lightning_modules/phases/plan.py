"""Plans of training: ordered phases, their checks, and the optimiser and scheduler of each.

The same type describes the warm-up, joint, projection and last-layer stages of ProtoPNet, the pretrain and train stages
of PIPNet, and the dense and fine-tune stages of QPM.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from protometry.lightning_modules.phases.check import problems_of
from protometry.lightning_modules.phases.override import MAPPINGS, PhaseOverride, merged
from protometry.lightning_modules.phases.phase import LONGEST, Phase, SchedulerSpec

_EPOCH_COUNTS = {"step_size", "T_max", "T_0", "total_steps", "total_iters", "milestones"}


@dataclass(frozen=True)
class PhasePlan:
    """Ordered phases, at least one, with unique names.

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
        names = self.names
        if not names:
            raise ValueError("Expected argument `phases` to leave at least one phase to train, but got none.")
        if len(set(names)) < len(names):
            raise ValueError(f"Expected argument `phases` to have unique names, but got {names}.")

    @property
    def names(self) -> list[str]:
        """The names of the phases, in order."""
        return [phase.name for phase in self.phases]

    @property
    def removable(self) -> set[str]:
        """The names of the phases, and the keys of their mappings, which an override may remove with null."""
        return {*self.names} | {key for phase in self.phases for field in MAPPINGS for key in getattr(phase, field)}

    @property
    def steps_per_batch(self) -> bool:
        """Whether a scheduler of a phase steps after every batch."""
        return any(phase.scheduler is not None and phase.scheduler.per == "step" for phase in self.phases)

    @property
    def total_epochs(self) -> int:
        """The total number of epochs."""
        return sum(phase.length for phase in self.phases)

    def locate(self, epoch: int) -> tuple[int, int]:
        """The phase of a 0-based epoch, and the epoch within it; epochs beyond the plan belong to the last phase."""
        for index, phase in enumerate(self.phases):
            if epoch < phase.length or index == len(self.phases) - 1:
                return index, epoch
            epoch -= phase.length
        raise AssertionError("a plan has phases")

    def ended(self, index: int, epochs: int) -> PhasePlan:
        """The same plan with one phase ended early; its schedulers keep their planned length."""
        changed = [replace(p, ended_after=epochs) if i == index else p for i, p in enumerate(self.phases)]
        return PhasePlan(tuple(changed))

    def scaled(self, factor: float) -> PhasePlan:
        """The same plan with epochs and epoch-wise scheduler steps multiplied by ``factor``, at least 1 each.

        Raises:
            ValueError: if that gives an unreasonable number of epochs.
        """
        if self.total_epochs * factor > LONGEST:
            raise ValueError(
                f"Expected argument `epoch_scale` to make at most {LONGEST} of the {self.total_epochs} epochs of the "
                f"plan, but got {factor}."
            )
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

    def override(self, changes: Mapping[str, PhaseOverride | None], absent: Collection[str] = ()) -> PhasePlan:
        """Change, append or remove phases.

        Args:
            changes: phase name -> fields to change, or None to remove the phase. A name the plan does not have appends
                a phase and must state ``epochs``, ``trainable`` and ``losses``.
            absent: phases and keys that may be removed although the plan does not have them, as other presets do.

        Raises:
            ValueError: with all problems: incomplete new phases (often a misspelt name), removals of unknown phases or
                keys, unknown fields, and numbers out of range.
        """
        phases, problems = {phase.name: phase for phase in self.phases}, []
        for name, change in changes.items():
            try:
                if change is not None:
                    phases[name] = self._changed(name, change, absent)
                elif phases.pop(name, None) is None and name not in absent:
                    problems.append(f"Expected `phases.{name}` to be one of {list(phases)} to be removed.")
            except ValueError as error:
                problems.append(str(error))
        if problems:
            raise ValueError(" ".join(problems))
        return PhasePlan(tuple(phases.values()))

    def _changed(self, name: str, change: PhaseOverride, absent: Collection[str]) -> Phase:
        known = {phase.name: phase for phase in self.phases}
        if name not in known and not {"epochs", "trainable", "losses"} <= set(change):
            raise ValueError(
                f"Expected `phases.{name}` to be one of {list(known)}, or a new phase that states epochs, trainable "
                f"and losses, but got only {sorted(change)}."
            )
        return merged(known.get(name, Phase(name, 1, {"": 0.0}, {})), change, absent)

    def check(
        self, groups: Collection[str], losses: Collection[str], actions: Collection[str], steps_per_epoch: int = 9
    ) -> None:
        """Refuse names the model does not have, and optimisers and schedulers that would fail, before any work starts.

        Raises:
            ValueError: with all problems, naming the phase, the field and the known names.
        """
        if problems := problems_of(self.phases, self.build, groups, losses, actions, steps_per_epoch):
            raise ValueError(" ".join(problems))

    def build(
        self, index: int, groups: Mapping[str, list[nn.Parameter]], steps_per_epoch: int
    ) -> tuple[torch.optim.Optimizer, LRScheduler | None]:
        """The optimiser of one phase, with one named parameter group per trainable group, and its scheduler or None."""
        phase = self.phases[index]
        options = [
            {"params": groups[name], "lr": lr, "weight_decay": phase.weight_decay.get(name, 0.0), "name": name}
            for name, lr in phase.rates.items()
        ]
        field = f"phases.{phase.name}"
        kind = _named(torch.optim, torch.optim.Optimizer, phase.optimizer.name, f"{field}.optimizer")
        optimizer = kind(options, **phase.optimizer.kwargs)
        if phase.scheduler is None:
            return optimizer, None
        kind = _named(torch.optim.lr_scheduler, LRScheduler, phase.scheduler.name, f"{field}.scheduler")
        if "metrics" in inspect.signature(kind.step).parameters:
            raise ValueError(
                f"Expected `{field}.scheduler.name` to be a scheduler that counts epochs or steps, but got "
                f"{phase.scheduler.name!r}, which needs a score, and gets none. Name another, such as "
                "CosineAnnealingLR."
            )
        length = sum(p.epochs for p in self.phases if p is phase or p.goes_on_with(phase))
        length *= steps_per_epoch if phase.scheduler.per == "step" else 1
        known = inspect.signature(kind).parameters
        automatic = {"total_steps": length, "T_max": length, "max_lr": list(phase.rates.values())}
        kwargs = {name: value for name, value in automatic.items() if name in known} | phase.scheduler.kwargs
        return optimizer, cast(LRScheduler, kind(optimizer, **kwargs))


def _named(module: Any, base: type, name: str, field: str) -> Any:
    """A class of a torch module by name."""
    named = getattr(module, name, None)
    if not (inspect.isclass(named) and issubclass(named, base)):
        raise ValueError(f"Expected `{field}.name` to be a class of {module.__name__}, but got {name!r}.")
    return named


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
