"""Phases of training, with their optimisers and schedulers, as data."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

BEHIND_PROTOTYPES = {"assignment", "head", "residual"}  # groups that depend on scores only
OF_LOGITS = {"cross_entropy", "multilabel_margin", "multilabel_margin_sum", "off_class_l1"}  # losses without maps
FIT_HEAD = "fit_head"  # the action after which a phase no longer trains the head
LONGEST = 100_000  # epochs; more is assumed to be a typing error


@dataclass(frozen=True)
class OptimizerSpec:
    """An optimiser of ``torch.optim`` by name.

    Args:
        key: phases with the same key share the optimiser's state and scheduler; a phase that trains more groups keeps
            their state but has its own scheduler.
    """

    name: str = "Adam"
    kwargs: dict[str, Any] = field(default_factory=dict)
    key: str | None = None


@dataclass(frozen=True)
class SchedulerSpec:
    """A scheduler of ``torch.optim.lr_scheduler`` by name.

    Args:
        kwargs: further arguments; ``total_steps`` or ``T_max`` left out means the length of the phase (of all phases
            with the optimiser's key and the same groups), ``max_lr`` left out means the learning rates of the phase.
        per: step after every epoch or after every batch.
    """

    name: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    per: Literal["epoch", "step"] = "epoch"


@dataclass(frozen=True)
class HeadSpec:
    """How the action ``fit_head`` solves a last layer.

    Args:
        penalty: λ of the weights; ``"auto"`` chooses it on validation images or, without any, by five-fold
            cross-validation on training images. None, in older files, means the same.
        others: factor of λ for the units of other classes; with inf, a class reads only its own.
        l1_ratio: α of the elastic net; 1 for absolute values only.
        nonnegative: whether weights are at least 0.
        weights_per_class: at most so many on average where λ is chosen; None for any number.

    Raises:
        ValueError: for a number out of range, or a limit where λ is given.
    """

    penalty: float | Literal["auto"] | None = "auto"
    others: float = 5.0
    l1_ratio: float = 1.0
    nonnegative: bool = False
    weights_per_class: float | None = None

    def __post_init__(self) -> None:
        if not (self.is_chosen or (isinstance(self.penalty, int | float) and 0 < self.penalty < math.inf)):
            raise ValueError(f"Expected `head.penalty` to be above 0 and finite, or auto, but got {self.penalty!r}.")
        if self.weights_per_class is not None and not self.weights_per_class > 0:
            raise ValueError(f"Expected `head.weights_per_class` to be above 0, but got {self.weights_per_class}.")
        if self.weights_per_class is not None and not self.is_chosen:
            raise ValueError(
                "Expected `head.weights_per_class` only where the penalty is chosen, but `head.penalty` is "
                f"{self.penalty}. Set it to auto."
            )
        if not self.others > 0:
            raise ValueError(f"Expected `head.others` to be above 0, but got {self.others}.")
        if not 0 < self.l1_ratio <= 1:
            raise ValueError(f"Expected `head.l1_ratio` to be above 0 and at most 1, but got {self.l1_ratio}.")

    @property
    def is_chosen(self) -> bool:
        """Whether λ is chosen rather than given."""
        return self.penalty in ("auto", None)


@dataclass(frozen=True)
class Phase:
    """One stage of training.

    Args:
        name: unique within the plan; a printable text of at most 100 characters.
        epochs: from 1 to 100,000.
        trainable: parameter group -> learning rate, at least 0; all other groups are frozen.
        losses: loss term -> finite coefficient; terms not named are not computed.
        weight_decay: parameter group -> weight decay, at least 0; 0 if not named.
        bn: "train" or "eval" for all BatchNorm layers, or the groups whose BatchNorm layers are in train mode.
        scheduler: the learning-rate schedule, or None for constant rates.
        on_exit: actions after the last batch and before validation.
        selectable: whether the best checkpoint may come from this phase.
        head: options of the action ``fit_head``, after which the phase keeps the last layer fixed.
        prune: numbers of the units that the action ``prune_units`` deactivates.
        ended_after: epochs after which early stopping ended it; None if it lasts as planned.
    """

    name: str
    epochs: int
    trainable: dict[str, float]
    losses: dict[str, float]
    weight_decay: dict[str, float] = field(default_factory=dict)
    bn: Literal["train", "eval"] | list[str] = "train"
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    scheduler: SchedulerSpec | None = None
    on_enter: tuple[str, ...] = ()
    on_exit: tuple[str, ...] = ()
    selectable: bool = False
    head: HeadSpec = field(default_factory=HeadSpec)
    prune: tuple[int, ...] = ()
    ended_after: int | None = None

    def __post_init__(self) -> None:
        if problems := self._problems():
            raise ValueError(" ".join(problems))

    def _problems(self) -> list[str]:
        problems = []
        if not (isinstance(self.name, str) and self.name.strip() and self.name.isprintable()) or len(self.name) > 100:
            problems.append(f"Expected the name of a phase to be a printable text, but got {self.name!r:.100}.")
        if not 1 <= self.epochs <= LONGEST:
            problems.append(
                f"Expected argument `epochs` of phase {self.name!r} to be at least 1 and at most {LONGEST}, but got "
                f"{self.epochs}. Remove the phase with `phases: {{{self.name}: null}}`."
            )
        if not self.trainable:
            problems.append(f"Expected argument `trainable` of phase {self.name!r} to name at least one group.")
        if FIT_HEAD in self.on_exit or FIT_HEAD in self.on_enter[:-1]:
            problems.append(
                f"Expected phase {self.name!r} to have {FIT_HEAD!r} as the last action of `on_enter`, after all "
                f"that it depends on, but got on_enter {list(self.on_enter)} and on_exit {list(self.on_exit)}."
            )
        if FIT_HEAD in self.on_enter and self.moves_prototypes:
            problems.append(
                f"Expected phase {self.name!r} to train nothing before its last layer and to have `bn: eval`, because "
                f"{FIT_HEAD!r} solves the layer for the scores as they are, but got trainable {self.trainable} and "
                f"bn {self.bn!r}."
            )
        for name, least in (("trainable", 0.0), ("weight_decay", 0.0), ("losses", -math.inf)):
            given = getattr(self, name)
            if wrong := {key: value for key, value in given.items() if not (math.isfinite(value) and value >= least)}:
                which = "finite numbers" if name == "losses" else "finite numbers of at least 0"
                problems.append(f"Expected argument `{name}` of phase {self.name!r} to hold {which}, but got {wrong}.")
        return problems

    @property
    def length(self) -> int:
        """Epochs the phase lasts: as planned, or until early stopping ended it."""
        return self.epochs if self.ended_after is None else self.ended_after

    @property
    def rates(self) -> dict[str, float]:
        """Learning rates of the groups: as planned, and 0 for a head that was solved."""
        solved = {"head"} if FIT_HEAD in self.on_enter else set()
        return {group: 0.0 if group in solved else rate for group, rate in self.trainable.items()}

    @property
    def moves_prototypes(self) -> bool:
        """Whether training changes prototypes or the latent patches that they are compared with."""
        trained = {group for group, rate in self.trainable.items() if rate != 0}
        return not trained <= BEHIND_PROTOTYPES or self.bn not in ("eval", [])

    @property
    def reads_scores_only(self) -> bool:
        """Whether only a head is trained, by losses of logits and weights."""
        still = self.trainable.keys() <= {"assignment", "head"} and self.bn in ("eval", [])
        return still and self.losses.keys() <= OF_LOGITS

    def goes_on_with(self, other: Phase) -> bool:
        """Whether two phases share optimiser and scheduler."""
        shared = self.optimizer.key is not None and self.optimizer.key == other.optimizer.key
        return shared and self.trainable.keys() == other.trainable.keys()


def one_cycle(
    name: str,
    epochs: int,
    rates: dict[str, float],
    losses: dict[str, float],
    optimizer: OptimizerSpec | None = None,
    **changes: Any,
) -> Phase:
    """A phase whose rates rise and fall once, step by step; AdamW by default."""
    scheduler = SchedulerSpec("OneCycleLR", per="step")
    return Phase(
        name, epochs, rates, losses, optimizer=optimizer or OptimizerSpec("AdamW"), scheduler=scheduler, **changes
    )
