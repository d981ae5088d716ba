"""Changes to single phases, as written in yaml and stored in checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any, Literal, TypedDict, cast

from protometry.lightning_modules.phases.phase import OptimizerSpec, Phase, SchedulerSpec

_SPECS: dict[str, Callable[..., OptimizerSpec | SchedulerSpec]] = {
    "optimizer": OptimizerSpec,
    "scheduler": SchedulerSpec,
}


class HeadOverride(TypedDict, total=False):
    """Fields to change of :class:`~protometry.lightning_modules.phases.phase.HeadSpec`."""

    penalty: float | None
    others: float
    l1_ratio: float
    nonnegative: bool


class SpecOverride(TypedDict, total=False):
    """Fields of an optimiser or scheduler: a new one if there is a name, otherwise changes to the phase's own."""

    name: str
    kwargs: dict[str, Any]
    key: str | None
    per: Literal["epoch", "step"]


class PhaseOverride(TypedDict, total=False):
    """Fields of one phase to change from yaml; mappings are merged key by key and null removes a key."""

    epochs: int
    trainable: dict[str, float | None]
    losses: dict[str, float | None]
    weight_decay: dict[str, float | None]
    bn: Literal["train", "eval"] | list[str]
    optimizer: SpecOverride
    scheduler: SpecOverride | None
    on_enter: list[str]
    on_exit: list[str]
    selectable: bool
    head: HeadOverride
    prune: list[int]


def plain(changes: Mapping[str, PhaseOverride | None]) -> dict[str, dict[str, Any] | None]:
    """Overrides as plain data, for checkpoints.

    Example:
        >>> plain({"warm": None, "joint": {"optimizer": OptimizerSpec("SGD")}})
        {'warm': None, 'joint': {'optimizer': {'name': 'SGD', 'kwargs': {}, 'key': None}}}
    """
    return {
        name: change
        if change is None
        else {k: asdict(cast(Any, v)) if is_dataclass(v) else v for k, v in change.items()}
        for name, change in changes.items()
    }


def merged(phase: Phase, change: PhaseOverride) -> Phase:
    """Mappings key by key, everything else replaced.

    Raises:
        ValueError: with all problems.
    """
    known, problems = list(PhaseOverride.__annotations__), []
    if unknown := [name for name in change if name not in known]:
        problems.append(f"Expected `phases.{phase.name}` to have only fields of {known}, but got {unknown}.")
    values: dict[str, Any] = {}
    for f in fields(Phase):
        if f.name not in change:
            continue
        value = change[f.name]  # type: ignore[literal-required]
        if f.name in ("trainable", "losses", "weight_decay"):
            old = {k: v for k, v in getattr(phase, f.name).items() if k}
            if absent := [k for k, v in value.items() if v is None and k not in old]:
                problems.append(
                    f"Expected `phases.{phase.name}.{f.name}` to remove only {list(old)}, but got {absent}."
                )
            value = {k: v for k, v in (old | value).items() if v is not None}
        elif f.name == "head":
            value = replace(phase.head, **value)
        elif f.name in _SPECS and isinstance(value, Mapping):
            value = _spec(phase, f.name, value)
        values[f.name] = tuple(value) if f.name in ("on_enter", "on_exit", "prune") else value
    try:
        result = replace(phase, **values)
    except ValueError as error:
        problems.append(str(error))
    if problems:
        raise ValueError(" ".join(problems))
    return result


def _spec(phase: Phase, name: str, change: Mapping[str, Any]) -> OptimizerSpec | SchedulerSpec:
    """An optimiser or scheduler: a new one, or the phase's own with changes."""
    own = getattr(phase, name)
    if "name" in change:
        return _SPECS[name](**change)
    if own is None:
        raise ValueError(
            f"Expected `phases.{phase.name}.{name}` to have a `name`, because the phase has none to change."
        )
    return replace(own, **{**change, "kwargs": own.kwargs | change.get("kwargs", {})})  # type: ignore[no-any-return]
