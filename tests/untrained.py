"""Checkpoints of untrained models on small SketchBirds, as a run would have them."""

from pathlib import Path
from typing import Any

import torch

from protometry.datamodules import SketchBirds
from protometry.lightning_modules import InterpretableModule
from tests.empty_checkpoint import EMPTY
from tests.lightning_modules.registry import MODELS


def saved(name: str, birds: SketchBirds, path: Path) -> Path:
    """Write the checkpoint of a model of 8 classes."""
    torch.manual_seed(3)
    model = MODELS[name](num_classes=8, image_size=(32, 32)).eval()
    if name == "ProtoPNet pruned":
        model.prototypes.active[::3] = False
    torch.save(stored(model, birds), path)
    return path


def stored(model: InterpretableModule, birds: SketchBirds) -> dict[str, Any]:
    """The content of a checkpoint."""
    settings = {
        "hyper_parameters": {**model.hparams, "_class_path": f"protometry.lightning_modules.{type(model).__name__}"},
        "datamodule_hyper_parameters": {**birds.hparams, "_class_path": "protometry.datamodules.SketchBirds"},
    }
    released = {"code": "", "file": "", "sha256": "", "class_names": birds.class_names}
    return EMPTY | settings | {"state_dict": model.state_dict(), "released": released}
