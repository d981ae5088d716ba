"""The parts of a run that callbacks ask of a trainer, with the types that Lightning does not know."""

from __future__ import annotations

from typing import TypeVar, cast

from lightning import Callback, Trainer

from protometry.datamodules.base import ImageDataModule
from protometry.lightning_modules.bases.training_inputs import data_of
from protometry.lightning_modules.contract import InterpretableModel
from protometry.lightning_modules.phases import Phase

Kind = TypeVar("Kind", bound=Callback)


def model_of(module: object) -> InterpretableModel:
    """The model that a hook is given, or that ``trainer.lightning_module`` is."""
    return cast(InterpretableModel, module)


def datamodule_of(trainer: Trainer) -> ImageDataModule:
    """The data of a run."""
    return cast(ImageDataModule, data_of(trainer))


def callbacks_of(trainer: Trainer, kind: type[Kind]) -> list[Kind]:
    """The callbacks of one kind, in order."""
    return [callback for callback in trainer.callbacks if isinstance(callback, kind)]  # type: ignore[attr-defined]


def callback_of(trainer: Trainer, kind: type[Kind]) -> Kind | None:
    """The first callback of a kind, if there is one."""
    return next(iter(callbacks_of(trainer, kind)), None)


def wrong_model(module: object, action: str, wanted: str) -> TypeError:
    """The error for a model that an action cannot change."""
    return TypeError(f"Expected a model {wanted} for the action {action!r}, but got {type(module).__name__}.")


def phase_of(trainer: Trainer, module: object) -> Phase:
    """The phase under way."""
    plan = model_of(module).phases()
    return plan.phases[plan.locate(trainer.current_epoch)[0]]
