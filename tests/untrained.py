"""Checkpoints of untrained models on small SketchBirds, as a run would have them."""

from pathlib import Path

import torch

from protometry.datamodules import SketchBirds
from tests.empty_checkpoint import EMPTY
from tests.lightning_modules.registry import MODELS


def saved(name: str, birds: SketchBirds, path: Path) -> Path:
    """Write the checkpoint of a model of 8 classes."""
    torch.manual_seed(3)
    model = MODELS[name](num_classes=8, image_size=(32, 32)).eval()
    if name == "ProtoPNet pruned":
        model.prototypes.active[::3] = False
    stored = {
        "hyper_parameters": {**model.hparams, "_class_path": f"protometry.lightning_modules.{type(model).__name__}"},
        "datamodule_hyper_parameters": {**birds.hparams, "_class_path": "protometry.datamodules.SketchBirds"},
    }
    released = {"code": "", "file": "", "sha256": "", "class_names": birds.class_names}
    torch.save(EMPTY | stored | {"state_dict": model.state_dict(), "released": released}, path)
    return path
