"""Changes to single phases, as written in yaml and stored in checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any, Literal, TypedDict, cast

from protometry.lightning_modules.phases.phase import OptimizerSpec, Phase, SchedulerSpec

MAPPINGS = ("trainable", "losses", "weight_decay")  # fields of a phase that are merged key by key
_SPECS: dict[str, Callable[..., OptimizerSpec | SchedulerSpec]] = {
    "optimizer": OptimizerSpec,
    "scheduler": SchedulerSpec,
}


class HeadOverride(TypedDict, total=False):
    """Fields to change of :class:`~protometry.lightning_modules.phases.phase.HeadSpec`."""

    penalty: float | Literal["auto"] | None
    others: float
    l1_ratio: float
    nonnegative: bool
    weights_per_class: float | None


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


def over(earlier: dict[str, Any], later: dict[str, Any], of_presets: Collection[str]) -> dict[str, Any]:
    """Overrides over earlier ones: the later value wins, and fields that it does not name are kept.

    Args:
        earlier: phase name -> fields, or None.
        later: the same.
        of_presets: phases and keys that null has to remove from a preset; what only ``earlier`` had added is gone.

    Example:
        >>> said = over({"joint": {"losses": {"cluster": 0.1}}, "extra": {"epochs": 1}}, {"extra": None}, {"joint"})
        >>> over(said, {"joint": {"epochs": 2, "losses": {"cluster": None}}}, {"joint", "cluster"})
        {'joint': {'losses': {'cluster': None}, 'epochs': 2}}
    """
    merged: dict[str, Any] = _over(earlier, later)
    for name, change in merged.items():
        for key in [key for key in MAPPINGS if isinstance((change or {}).get(key), dict)]:
            change[key] = _left((earlier.get(name) or {}).get(key) or {}, change[key], of_presets)
    return _left(earlier, merged, of_presets)


def _over(earlier: Any, later: Any) -> Any:
    if not isinstance(earlier, dict) or not isinstance(later, dict):
        return later
    return earlier | {str(name): _over(earlier.get(str(name)), value) for name, value in later.items()}


def _left(earlier: dict[str, Any], merged: dict[str, Any], of_presets: Collection[str]) -> dict[str, Any]:
    added = {name for name, value in earlier.items() if value is not None}.difference(of_presets)
    return {name: value for name, value in merged.items() if value is not None or name not in added}


def merged(phase: Phase, change: PhaseOverride, absent: Collection[str] = ()) -> Phase:
    """Mappings key by key, everything else replaced.

    Args:
        phase: what is changed.
        change: the fields.
        absent: keys that may be removed although the phase does not have them.

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
        if f.name in MAPPINGS:
            old = {k: v for k, v in getattr(phase, f.name).items() if k}
            if strange := [k for k, v in value.items() if v is None and k not in old and k not in absent]:
                problems.append(
                    f"Expected `phases.{phase.name}.{f.name}` to remove only {list(old)}, but got {strange}."
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
