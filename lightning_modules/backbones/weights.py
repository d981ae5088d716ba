"""Pretrained weights of a backbone: torchvision's by enum name, or any state dict by path; never a silent fallback."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn
from torchvision.models import WeightsEnum, get_model_weights, list_models

from protometry.run_folder.command_line.messages import counted
from protometry.run_folder.command_line.user_path import user_path
from protometry.run_folder.unreadable import why_unreadable

REMEDY = "Pass `--model.backbone.weights FILE`, or `null` to start from random weights."
_CLASSIFIERS = ("fc.", "classifier.")  # torchvision's names for what a backbone leaves out
_BACKBONE_PREFIX = "net."
_MODEL_PREFIX = "backbone."  # in the checkpoint of a model with a backbone
_PARALLEL, _COMPILED = "module.", "_orig_mod."  # put before names by DistributedDataParallel and by torch.compile
_OLD_DENSENET = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)")  # `norm.1`, as torchvision's own files have it


def load_weights(
    net: nn.Module,
    name: str,
    weights: str,
    cut: Collection[str] = (),
    translate: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]] | None = None,
) -> None:
    """Load pretrained weights into a network, strictly.

    A path holds the state dict of ``name`` (for a BagNet: of the authors' network) or of the backbone itself, or is the
    checkpoint of a run of this project, whose backbone is taken. Every key must match, DenseNet's also under the names
    of torchvision's files. Parameters keep their dtype: half-precision files are cast up. Reading a file cannot run
    code. An enum name is looked up in torchvision's cache (``$TORCH_HOME/hub/checkpoints``) and fetched if absent.

    Args:
        net: the network.
        name: its name, torchvision's for an enum name.
        weights: a path, also of a safetensors file, or an enum name.
        cut: keys that the file may also hold, of layers that the network no longer has.
        translate: gives the entries of a library's file the keys of the network; by default, torchvision's, whose
            classifier is dropped.

    Raises:
        FileNotFoundError: if the file is absent and, for an enum name, cannot be fetched.
        ValueError: if the file holds no state dict, or one of another network.
    """
    file = _locate(name, weights)
    own = net.state_dict()
    state = _read_state_dict(file, own)
    if all(key.startswith(_BACKBONE_PREFIX) for key in state):
        state = {key.removeprefix(_BACKBONE_PREFIX): value for key, value in state.items()}
    else:
        state = (translate or _without_classifier)(state)
    # a plain dict on purpose: without version metadata, files older than `num_batches_tracked` load too
    kept = {_OLD_DENSENET.sub(r"\1\2", key): value for key, value in state.items()}
    kept = {key: value for key, value in kept.items() if key not in cut}
    try:
        net.load_state_dict(kept, strict=True)
    except RuntimeError as error:
        raise ValueError(
            f"Expected argument `weights` to be a state dict of {name} or of the backbone, but got {file}: "
            f"{_difference(own, kept) or error}. Pass the file of the network named in `backbone.name`, "
            "or change that name."
        ) from error


def _difference(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str:
    """What sets the entries of a file apart from those of a network, empty if only their shapes differ."""
    lacking, more = ([key for key in one if key not in other] for one, other in ((own, given), (given, own)))
    sides = {"it lacks": lacking, "it also has": more}
    return "; ".join(
        f"{what} {counted(len(keys), 'key')}, such as {', '.join(keys[:3])}" for what, keys in sides.items() if keys
    )


def _without_classifier(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {key: value for key, value in state.items() if not key.startswith(_CLASSIFIERS)}


def _locate(name: str, weights: str) -> Path:
    choices: list[WeightsEnum] = list(get_model_weights(name)) if name in list_models(module=None) else []
    for choice in choices:
        if choice.name == weights:
            return _cached(choice)
    file = user_path(weights)
    if not file.is_file():
        named = f"one of {[choice.name for choice in choices]} or " if choices else ""
        raise FileNotFoundError(
            f"Expected argument `weights` of backbone {name!r} to be null or {named}an existing file, "
            f"but got {weights!r}. {REMEDY}"
        )
    return file


def _cached(choice: WeightsEnum) -> Path:
    folder = Path(torch.hub.get_dir(), "checkpoints")
    file = folder / Path(urlparse(choice.url).path).name
    if not file.is_file():
        try:
            choice.get_state_dict(check_hash=True, weights_only=True)
        except Exception as error:  # a download fails with many types of error, all of which mean that there is no file
            raise FileNotFoundError(
                f"Expected argument `weights` to name weights that are cached or can be fetched, but got "
                f"{choice.name}: {file.name} is not in {folder}, and {choice.url} cannot be fetched ({error!r}). "
                f"Put the file into that folder. {REMEDY}"
            ) from error
    return file


def without_wrappers(state: Mapping[str, Tensor], file: Path) -> dict[str, Tensor]:
    """The entries without ``_orig_mod.`` of ``torch.compile`` and ``module.`` of data parallelism, which is said.

    Example:
        >>> list(without_wrappers({"module._orig_mod.conv.weight": torch.ones(1)}, Path("weights.pth")))
        ['conv.weight']
    """
    plain = {key.replace(_COMPILED, ""): value for key, value in state.items()}
    while plain and all(key.startswith(_PARALLEL) for key in plain):
        plain = {key.removeprefix(_PARALLEL): value for key, value in plain.items()}
    if plain.keys() != state.keys():
        rank_zero_info(f"The names in {file} begin with `{_PARALLEL}` or hold `{_COMPILED}`, which is left out.")
    return plain


def _read_state_dict(file: Path, own: Collection[str]) -> Mapping[str, Tensor]:
    """The entries of a file, without wrappers that a network of the names ``own`` does not have, too."""
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: Any = load_file(file)
        else:
            content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # an unpickler may raise any type for a foreign or truncated file
        raise ValueError(
            f"Expected argument `weights` to be a file that torch.load(..., weights_only=True) reads, but got {file}: "
            f"{why_unreadable(file, error)}. Fetch it again, or save it with torch.save(model.state_dict(), file)."
        ) from error
    state = _backbone_of_checkpoint(content) or content
    if not (isinstance(state, Mapping) and state and all(isinstance(value, Tensor) for value in state.values())):
        got = f"the keys {list(state)[:6]}" if isinstance(state, Mapping) else f"a {type(state).__name__}"
        raise ValueError(
            f"Expected argument `weights` to hold a state dict, names with tensors, but got {file} with {got}. "
            "Save it with torch.save(model.state_dict(), file)."
        )
    if broken := [key for key, value in state.items() if not value.isfinite().all()]:
        raise ValueError(
            f"Expected argument `weights` to hold finite numbers, but got {file} with NaN or infinity in "
            f"{counted(len(broken), 'tensor')}, such as {', '.join(broken[:3])}. Fetch it again, or take the weights "
            "of an earlier epoch."
        )
    wrapped = not any(key.startswith(_PARALLEL) or _COMPILED in key for key in own)
    return without_wrappers(state, file) if wrapped else state


def _backbone_of_checkpoint(content: object) -> dict[str, Tensor]:
    """The backbone's entries of a checkpoint, empty if the file holds something else."""
    model = content.get("state_dict") if isinstance(content, Mapping) else None
    if not isinstance(model, Mapping):
        return {}
    begin = re.compile(rf"(?:{_PARALLEL}|{_COMPILED})*{_MODEL_PREFIX}")
    return {begin.sub("", key, count=1): model[key] for key in model if begin.match(key)}
