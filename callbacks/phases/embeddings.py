"""Embeddings of all training images, computed once and kept in files of the run instead of in memory.

The embedding of an image is the mean over cells of the model's latent, in evaluation mode and through the evaluation
transform. It is the same bit for bit whatever the batch size and the number of processes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from protometry.callbacks.forward.walk import walk
from protometry.callbacks.phases.ranks import state_hash
from protometry.callbacks.trainer_parts import datamodule_of
from protometry.command_line.user_path import shown
from protometry.datamodules.sample import sample_key
from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.settings import Effect, arguments_with

KEY = "key.json"  # written last: where it is, the files are whole
TYPES = {"label": np.int64, "concepts": np.bool_, "class_targets": np.float32}  # and what else is kept of an image


@dataclass(frozen=True)
class Embedded:
    """The training images as a model without its head sees them, each tensor mapped from a file.

    Args:
        embeddings: ``(n, D)`` float32.
        targets: ``(n,)`` int64 classes, or ``(n, K)`` float32 probabilities for data with soft targets.
        concepts: ``(n, L)`` bool.
    """

    embeddings: Tensor
    targets: Tensor
    concepts: Tensor


def embed_training_images(trainer: Trainer, module: LightningModule, folder: Path) -> Embedded:
    """The embeddings of all training images, read from the folder if its files belong to this model and data.

    Every process writes the rows of its share, and all must see the same folder. It takes n·(4D + L + 8) bytes on disk,
    with only those in use in memory.
    """
    datamodule = datamodule_of(trainer)
    loader: Any = datamodule.projection_dataloader()
    names = loader.dataset.sample_ids
    key = _key(module, datamodule)
    shapes = _shapes(module, datamodule, len(names))
    if not trainer.strategy.broadcast((folder / KEY).is_file() and _read_key(folder) == key):
        if trainer.is_global_zero:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / KEY).unlink(missing_ok=True)
            for name, (kind, shape) in shapes.items():
                np.lib.format.open_memmap(_file(folder, name), "w+", kind, shape)
        trainer.strategy.barrier()
        _write(module, datamodule, loader, folder, list(shapes))
        trainer.strategy.barrier()
        if trainer.is_global_zero:
            write_atomic(folder / KEY, json.dumps(key, indent=1) + "\n")
        rank_zero_info(f"Embeddings of {len(names)} training images: {shown(folder)}")
    targets = "class_targets" if "class_targets" in shapes else "label"
    return Embedded(*(_mapped(folder, name) for name in ("embeddings", targets, "concepts")))


def _key(module: Any, datamodule: Any) -> dict[str, Any]:
    """What decides the embeddings."""
    contents = datamodule.dataset("projection").contents
    unseen = arguments_with(type(datamodule), Effect.NONE, Effect.TRAINING) | {"_class_path", "_instantiator"}
    settings = {name: repr(value) for name, value in datamodule.hparams.items() if name not in unseen}
    return {
        "backbone": state_hash(module.backbone),
        "data": type(datamodule).__qualname__,
        "settings": settings,
        "images": hashlib.sha256("\n".join(contents).encode()).hexdigest(),
        "computed_with": [torch.__version__, module.device.type],
    }


def _shapes(module: Any, datamodule: Any, images: int) -> Mapping[str, tuple[Any, tuple[int, ...]]]:
    sizes = {"label": (images,), "concepts": (images, datamodule.num_concepts)}
    if datamodule.capabilities("projection").soft_targets is True:
        sizes["class_targets"] = (images, datamodule.num_classes)
    others = {name: (TYPES[name], shape) for name, shape in sizes.items()}
    return {"embeddings": (np.float32, (images, module.backbone.out_channels))} | others


def _write(module: LightningModule, datamodule: Any, loader: Any, folder: Path, names: list[str]) -> None:
    """The rows of this process's share."""
    rows = {sample_key(sample_id): row for row, sample_id in enumerate(loader.dataset.sample_ids)}
    files = {name: np.load(_file(folder, name), mmap_mode="r+") for name in names}
    for batch, outputs in walk(module, loader, datamodule.image_size):
        own = [rows[key] for key in batch["sample_key"].tolist()]
        assert outputs.latent is not None
        fields = {**batch, "embeddings": outputs.latent.mean(dim=(2, 3))}
        for name, file in files.items():
            file[own] = fields[name].cpu().numpy()
    for file in files.values():
        file.flush()


def _mapped(folder: Path, name: str) -> Tensor:
    return torch.from_numpy(np.load(_file(folder, name), mmap_mode="c"))  # nothing is written back


def _read_key(folder: Path) -> Any:
    return json.loads((folder / KEY).read_text(encoding="utf-8"))


def _file(folder: Path, name: str) -> Path:
    return folder / f"{name}.npy"
