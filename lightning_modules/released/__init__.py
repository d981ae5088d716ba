"""Weights saved by the authors' released code, loaded into our models."""

from __future__ import annotations

from pathlib import Path

from protometry.lightning_modules.bases.interpretable import InterpretableModule
from protometry.lightning_modules.pipnet import PIPNet
from protometry.lightning_modules.protopnet import ProtoPNet
from protometry.lightning_modules.protopool import ProtoPool
from protometry.lightning_modules.prototree import ProtoTree
from protometry.lightning_modules.protovit import ProtoViT
from protometry.lightning_modules.released import pipnet, protopnet, protopool, prototree, protovit
from protometry.lightning_modules.released.format import Format
from protometry.lightning_modules.released.load import load_in_format
from protometry.run_folder.command_line.user_path import user_path

FORMATS: dict[type[InterpretableModule], Format] = {
    ProtoPNet: protopnet.FORMAT,
    ProtoPool: protopool.FORMAT,
    PIPNet: pipnet.FORMAT,
    ProtoTree: prototree.FORMAT,
    ProtoViT: protovit.FORMAT,
}


def load_released(model: InterpretableModule, file: str | Path) -> dict[str, str]:
    """Fill a model with the weights in a state dict of its authors' code.

    Reading the file cannot run code. ::

        model = ProtoPNet(num_classes=200, image_size=(224, 224), backbone={"name": "vgg19"})
        load_released(model, "protopnet.pth")

    Args:
        model: with the sizes of the one that was trained; changed in place.
        file: tensors by the names of the authors' code, alone or under ``model_state_dict``.

    Returns:
        The origin of the weights: ``code``, name of the ``file``, and its ``sha256``.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if there is no format for the model, an argument of the model contradicts the authors' code, or the
            file holds a pickled module, is incomplete, or has other names or shapes.
    """
    for kind, form in FORMATS.items():
        if isinstance(model, kind):
            return load_in_format(model, user_path(file), form)
    known = ", ".join(kind.__name__ for kind in FORMATS)
    raise ValueError(f"Expected argument `model` to be one of {known}, but got {type(model).__name__}.")


__all__ = ["FORMATS", "Format", "load_released"]
