"""Trained models, rebuilt from the checkpoints of their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from protometry.lightning_modules.bases.arguments import arguments_of
from protometry.lightning_modules.bases.interpretable import InterpretableModule
from protometry.run_folder.checkpoint_file import read_checkpoint
from protometry.run_folder.command_line.first_look import MODEL_FILE, is_model_folder
from protometry.run_folder.hub import model_path
from protometry.run_folder.model_folder import read_exported
from protometry.run_folder.trusted_classes import made_as_stored, stored_class

_TIMES, _FEWEST = 4, 2**24  # elements of a new tensor, of all stored ones and of small models


def load_model(path: str | Path, *, allow_classes: Sequence[str] = (), **changes: Any) -> InterpretableModule:
    """A trained model, from a checkpoint of its run or from its exported folder, in evaluation mode on the CPU.

    The checkpoint describes the model and holds all its weights; pretrained weights of the backbone are not read, so
    ``backbone.weights`` of the result is None. ::

        model = load_model("runs/quickstart/checkpoints/last.ckpt")
        tree = load_model("runs/tree/checkpoints/best.ckpt", inference="greedy")
        exported = load_model("model/")
        fetched = load_model("hf://owner/name")

    Args:
        path: a checkpoint that ``train.py`` has written, a folder of ``protometry export``, or the address of one on
            the Hugging Face hub.
        allow_classes: packages whose classes the checkpoint may name besides this project's; importing one runs its
            code. Modules in the folder of a run are never imported.
        changes: arguments of the model that replace the run's; they also replace stored values of the same name, such
            as the ``score_threshold`` of PIPNet.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is damaged or foreign, names a class that is not allowed or not a model, holds the
            weights of another model, or if the model lacks an argument in ``changes``.
    """
    path = model_path(path)
    if is_model_folder(path):
        return model_from(read_exported(path), path / MODEL_FILE, allow_classes, **changes)
    return model_from(read_checkpoint(path, mmap=True), path, allow_classes, **changes)


def model_from(
    checkpoint: Mapping[str, Any], path: Path, allow_classes: Sequence[str] = (), **changes: Any
) -> InterpretableModule:
    """The same from the content of a checkpoint that was read from ``path``, which is left as it is."""
    stored = checkpoint["hyper_parameters"]
    kind = stored_class(stored, InterpretableModule, path, allow_classes)  # type: ignore[type-abstract]
    if unknown := [name for name in changes if name not in arguments_of(kind)]:
        raise ValueError(_no_such_argument(unknown[0], kind, path))
    backbone = (stored | changes).get("backbone")
    if isinstance(backbone, dict):
        changes["backbone"] = {**backbone, "weights": None}
    state = copy(checkpoint["state_dict"])
    with _Bounded(state):
        model = made_as_stored(kind, stored, path, **changes)
    state.update((name, buffer) for name, buffer in model.named_buffers() if name in changes)
    try:
        model.load_state_dict(state)
    except ValueError as error:
        raise ValueError(f"{error} This is {path}.") from error
    return model.eval()


class _Bounded(TorchDispatchMode):  # type: ignore[no-untyped-call]  # of torch
    """Refuses to make tensors that are far larger than all stored ones, before they take memory and time."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        tensors = [value for value in state.values() if isinstance(value, Tensor)]
        stored = sum(min(value.numel(), value.untyped_storage().nbytes()) for value in tensors)  # a view may repeat one
        self.most = max(_TIMES * stored, _FEWEST)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, after a look at the shape of what it makes."""
        options = kwargs or {}
        if "device" in options and not any(isinstance(each, Tensor) for each in args):
            made = function(*args, **options | {"device": "meta"})
            if made.numel() > self.most:
                raise ValueError(
                    f"they ask for tensors of {tuple(made.shape)}, far more than the weights that are stored"
                )
        return function(*args, **options)


def _no_such_argument(name: str, kind: type, path: str | Path) -> str:
    """The message for an argument that a model does not have."""
    models = [model for model in InterpretableModule.__subclasses__() if model.__module__.startswith("protometry.")]
    owners = [model.__name__ for model in models if name in arguments_of(model)]
    if owners:
        whose = " or ".join(owners)
        return f"Expected argument `{name}` for a {whose} only, but {path} holds a {kind.__name__}. Leave it out."
    return f"Expected arguments of {kind.__name__}, {sorted(arguments_of(kind))}, but got {name!r}."
