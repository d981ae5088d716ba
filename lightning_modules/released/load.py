"""Files of released weights, read without running code, checked completely, then loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from protometry.lightning_modules.backbones.weights import without_wrappers
from protometry.lightning_modules.bases.interpretable import InterpretableModule
from protometry.lightning_modules.released.format import Contents, Format
from protometry.run_folder.unreadable import why_unreadable

SHOWN = 3  # names of a kind in an error
STATE = "model_state_dict"
COUNTER = "num_batches_tracked"  # of BatchNorm, which old files lack and evaluations do not read
SHARED: dict[str, tuple[Any, ...]] = {"task": ("multiclass",), "backbone.until": (None, "None")}
DEFAULTS = {"strides": "standard"}


def load_in_format(model: InterpretableModule, file: Path, form: Format) -> dict[str, str]:
    """Fill a model, as :func:`~protometry.lightning_modules.released.load_released`, from a file of a format."""
    _check_arguments(model, form)
    state, settings = _read(file, form)
    for begin, what in form.refused.items():
        if matching := [name for name in state if name.startswith(begin)]:
            raise ValueError(
                f"Expected {file} to hold weights that {type(model).__name__} has, but `{matching[0]}` is of {what}."
            )
    _check_settings(file, settings, form)
    tensors = {form.ours(name): tensor for name, tensor in state.items() if name not in form.ignored}
    own = model.state_dict()
    adapted = form.adapt(model, Contents(file=file, tensors=tensors, settings=settings), form)
    fitting = {name: _fitted(tensor, own.get(name)) for name, tensor in adapted.items()}
    if problems := _problems(model, fitting, form):
        sizes = ", ".join(f"`{name}`" for name in form.sizes)
        raise ValueError(
            f"Expected {file} to hold the weights of a {type(model).__name__} of the configured sizes, as the "
            f"{form.code} names them, but {'; '.join(problems)}. Set {sizes} and the number of classes as they were in "
            "training."
        )
    model.load_state_dict(own | fitting)
    with file.open("rb") as content:
        return {"code": form.code, "file": file.name, "sha256": hashlib.file_digest(content, "sha256").hexdigest()}


def _check_arguments(model: InterpretableModule, form: Format) -> None:
    for name, values in (SHARED | dict(form.arguments)).items():
        first, _, key = name.partition(".")
        value = model.hparams.get(first)
        value = (value or {}).get(key, DEFAULTS.get(key)) if key else value
        if value not in values:
            raise ValueError(
                f"Expected argument `{name}` of {type(model).__name__} to be {' or '.join(map(repr, values))}, as in "
                f"the {form.code}, but got {value!r}."
            )


def _read(file: Path, form: Format) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state dict, without prefixes of wrappers, and what else the file holds."""
    if not file.is_file():
        raise FileNotFoundError(f"Expected argument `state_dict` to be a file, but {file} does not exist.")
    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # an unpickler may raise any type for a module or a truncated file
        raise ValueError(
            f"Expected {file} to hold tensors by name, but it is a pickled module, which would run code when it is "
            f"read, or damaged ({why_unreadable(file, error)}). Where the authors' code can be imported, write its "
            f"state dict with these three lines: {form.lines(file)}"
        ) from error
    whole = content if isinstance(content, Mapping) else {}
    state = whole.get(STATE, whole)
    if not (isinstance(state, Mapping) and state and all(isinstance(each, Tensor) for each in state.values())):
        got = f"the keys {list(whole)[:SHOWN]}" if whole else f"a {type(content).__name__}"
        raise ValueError(
            f"Expected {file} to hold tensors by name, alone or under `{STATE}`, but got {got}. Where the authors' "
            f"code can be imported, write them with these three lines: {form.lines(file)}"
        )
    settings = {} if state is whole else {name: value for name, value in whole.items() if name != STATE}
    return without_wrappers(state, file), settings


def _check_settings(file: Path, settings: Mapping[str, Any], form: Format) -> None:
    for name, value in form.implied.items():
        if name not in settings:
            rank_zero_warn(
                f"{file} lacks `{name}`, which affects the numbers. The default of the {form.code}, {value!r}, is "
                "assumed."
            )
        elif settings[name] != value:
            raise ValueError(
                f"Expected {file} to be of a model with {value!r} as `{name}`, but it has {settings[name]!r}, which "
                "our model does not support."
            )


def _fitted(tensor: Tensor, own: Tensor | Any) -> Tensor:
    """In the type of our tensor, and in its shape if only axes of length 1 differ."""
    if not isinstance(own, Tensor):
        return tensor
    same = [side for side in tensor.shape if side != 1] == [side for side in own.shape if side != 1]
    return (tensor.reshape(own.shape) if same else tensor).to(own.dtype)


def _problems(model: InterpretableModule, given: Mapping[str, Tensor], form: Format) -> list[str]:
    """Missing, unexpected, misshapen or non-finite tensors, a text for each kind."""
    own = model.state_dict()
    buffers = [f"backbone.{name}" for name, _ in model.backbone.named_buffers() if not name.endswith(COUNTER)]
    needed = [name for name in [*dict(model.named_parameters()), *buffers] if name in own]
    shapes = {name: (tuple(given[name].shape), tuple(own[name].shape)) for name in given if name in own}
    kinds = {
        "missing": [form.theirs(name) for name in needed if name not in given],
        "unexpected": [form.theirs(name) for name in given if name not in own],
        "of another shape": [
            f"{form.theirs(name)}: {stored} instead of {wanted}"
            for name, (stored, wanted) in shapes.items()
            if stored != wanted
        ],
        "not finite": [form.theirs(name) for name, tensor in given.items() if not tensor.isfinite().all()],
    }
    return [f"{len(names)} {kind} ({_some(names)})" for kind, names in kinds.items() if names]


def _some(names: Sequence[str]) -> str:
    return ", ".join([*names[:SHOWN], *(["…"] if len(names) > SHOWN else [])])
