"""The schema of checkpoints: what ``train.py`` writes, and what every reader of one may rely on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from torch import Tensor

from protometry.run_folder.schema import Record

DEEPEST, MOST = 64, 2_000_000  # nested settings, and all that they hold
Count = Annotated[int, Field(ge=0)]


class Settings(Record):
    """Arguments of a class; nothing but Lightning's own function may make it."""

    class_path: Annotated[str | None, Field(alias="_class_path")] = None
    instantiator: Annotated[Literal["lightning.pytorch.cli.instantiate_module"], Field(alias="_instantiator")] = (
        "lightning.pytorch.cli.instantiate_module"
    )


class ModelSettings(Settings):
    """Arguments of a model."""

    backbone: dict[str, Any] | None = None


class StoredTraining(Record):
    """What determined the weights."""

    settings: Annotated[list[dict[str, Any]], Field(min_length=1)]
    phases: dict[str, dict[str, Any]]
    epochs: dict[str, Count]
    phase: str
    complete: bool
    projected: bool | None
    class_names: list[str] | None = None


class Released(Record):
    """The origin of weights that were not trained here."""

    code: str
    file: str
    sha256: str
    class_names: list[str]


class Checkpoint(Record):
    """The content of every checkpoint."""

    state_dict: dict[str, Tensor | dict[str, Any]]  # or what a module stores besides its tensors
    hyper_parameters: ModelSettings
    datamodule_hyper_parameters: Settings
    global_step: Count
    loops: dict[str, Any]
    callbacks: dict[str, dict[str, Any]]
    training: StoredTraining = Field(
        default_factory=lambda: StoredTraining.model_construct()
    )  # where none was recorded
    released: Released | None = None


class Progress(Record):
    """A counter of Lightning."""

    total: dict[str, Any]
    current: dict[str, Any]


class FitLoop(Record):
    """The counters of a training."""

    epoch_progress: Progress


class Loops(Record):
    """All counters."""

    fit_loop: FitLoop


class Schedule(Record):
    """The place in the plan."""

    index: Count
    entered: bool
    parked: dict[str, dict[str, Any]]


class Curves(Record):
    """Figures of every epoch."""

    rows: list[dict[str, Any]] = Field(default_factory=list)


class Best(Record):
    """The best score so far."""

    best_score: float | None = None


class Callbacks(Record):
    """The states of callbacks from which a resumed run continues."""

    schedule: Annotated[Schedule, Field(alias="PhaseSchedule")]
    curves: Annotated[Curves, Field(alias="TrainingCurves")] = Field(default_factory=Curves)
    best: Annotated[Best, Field(alias="RunCheckpoint")] = Field(default_factory=Best)


class Resumable(Record):
    """What else a resumed run needs."""

    epoch: Count
    loops: Loops
    callbacks: Callbacks
    optimizer_states: Annotated[list[dict[str, Any]], Field(min_length=1)]
    lr_schedulers: list[dict[str, Any]]
    training: StoredTraining | None = None

    @model_validator(mode="after")
    def _is_in_a_phase(self) -> Resumable:
        if self.training is not None and self.callbacks.schedule.index >= len(self.training.phases):
            raise ValueError(f"its phase, {self.callbacks.schedule.index}, is none of {len(self.training.phases)}")
        return self


def is_bounded(content: Any) -> bool:
    """Whether nested mappings and lists are few and flat enough to inspect all of them.

    Args:
        content: plain data, which may contain itself.

    Example:
        >>> itself = []
        >>> itself.append(itself)
        >>> is_bounded([{"a": [1]}]), is_bounded(itself)
        (True, False)
    """
    todo, seen = [(content, 0)], 0
    while todo:
        value, depth = todo.pop()
        inner: Iterable[Any] = value.values() if isinstance(value, Mapping) else value
        nested = [each for each in inner if isinstance(each, Mapping | list | tuple)]
        seen += len(value)
        if (nested and depth >= DEEPEST) or seen > MOST:
            return False
        todo += [(each, depth + 1) for each in nested]
    return True
