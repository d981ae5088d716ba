"""The weights of a finished run, from which another training starts."""

from __future__ import annotations

from torch import nn

from protometry.command_line.user_path import user_path
from protometry.run_folder.checkpoint_file import read_checkpoint

OF_THE_DATA = ("class_weights", "decision_threshold")  # buffers that the new training sets itself


def load_initial_weights(model: nn.Module, path: str) -> None:
    """Fill a model from a checkpoint of the same class; phases, optimisers and epochs start from the beginning.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged or foreign, or of another class or shape.
    """
    checkpoint = read_checkpoint(path, mmap=True)
    file, kind = user_path(path), type(model).__name__
    theirs = str(checkpoint["hyper_parameters"].get("_class_path")).rpartition(".")[2]
    if theirs != kind:
        raise ValueError(
            f"Expected argument `init_from` to be a checkpoint of a {kind}, but {file} is of a {theirs}. To start from "
            f"its backbone alone, pass `--model.backbone.weights {file}`."
        )
    own = {name: value for name, value in model.state_dict().items() if name in OF_THE_DATA}
    state = {name: value for name, value in checkpoint["state_dict"].items() if name not in OF_THE_DATA}
    try:
        model.load_state_dict(state | own)
    except ValueError as error:
        raise ValueError(
            f"{error} This is {file}, given as `init_from`. Use the arguments of the model in its run, or start from "
            f"its backbone alone with `--model.backbone.weights {file}`."
        ) from error
