"""Features of the images of a run, kept on the disk while a phase does not train the backbone.

Where the data module has a ``cache``, the backbone then sees every image once, and the steps, projection, solved heads
and validation of the phase, and later runs with the same backbone, read what it made of it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sized
from typing import cast

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, distributed

from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.forward.images_per_forward import images_per_forward
from protometry.callbacks.trainer_parts import datamodule_of
from protometry.lightning_modules.backbones.kept_features import KeptFeatures, features_in_evaluation
from protometry.lightning_modules.bases.interpretable import InterpretableModule
from protometry.run_folder.command_line.progress import track
from protometry.run_folder.command_line.user_path import user_path


def keep_features(trainer: Trainer, module: LightningModule) -> None:
    """Compute the features that are missing, on all processes, and let the backbone read them in this phase.

    They come in float32 from forwards of the size that evaluations use, which read the same bits with and without them.
    A run that keeps none ends with the same weights, bit for bit, as long as the features of an image do not depend on
    the size of its batch: on a CPU, those of ResNets and ViTs do not, those of MobileNetV2 and EfficientNet-Lite0 do in
    their last digits. On a GPU, training without kept features may round to TF32.

    Raises:
        ValueError: if the disk has no room for them.
    """
    model, datamodule = cast(InterpretableModule, module), datamodule_of(trainer)
    backbone = model.backbone
    backbone.kept = None
    cache = getattr(datamodule, "cache", None)  # a data module of another kind has none
    if cache is None:
        return
    if reason := _obstacle(model):
        rank_zero_info(f"No features are kept in phase {model.phase.name!r}: {reason}.")
        return
    loaders = datamodule.repeated_dataloaders()
    kept = KeptFeatures(backbone, user_path(cache), model.image_size)
    _refuse_full_disk(kept, sum(len(cast(Sized, loader.dataset)) for loader in loaders))
    made = 0
    with evaluation_mode(module), torch.no_grad():
        chunk, _ = images_per_forward(model, model.image_size, model.device)

        def features(images: Tensor) -> Tensor:
            chunks = torch.split(images, chunk)
            parts = [(part, part[torch.arange(chunk).clamp(max=len(part) - 1)]) for part in chunks]
            return torch.cat([backbone(full)[: len(part)] for part, full in parts])

        for loader in loaders:
            for batch in track(loader, "Keeping features"):
                for name in ("image", "second_view"):
                    if name in batch:
                        made += kept.keep(batch[name].to(model.device), features)
    known = max(0, len(kept) - made)
    if distributed.is_initialized():
        distributed.barrier()
    kept.reload()
    backbone.kept = kept
    rank_zero_info(f"Features of {len(kept)} images are in {kept.folder}, {known} of them from before.")


def _obstacle(model: InterpretableModule) -> str | None:
    """Why the features of an image may change during the phase, or None."""
    backbone = model.backbone
    if any(parameter.requires_grad for parameter in backbone.parameters()):
        return "it trains the backbone"
    noise = torch.rand(2, 3, *model.image_size, generator=torch.Generator().manual_seed(0)).to(model.device)
    buffers = [buffer.clone() for buffer in backbone.buffers()]
    with torch.random.fork_rng(), torch.no_grad():
        in_training = backbone(noise)
    moved = False
    for buffer, before in zip(backbone.buffers(), buffers, strict=True):
        moved |= not torch.equal(buffer, before)
        buffer.copy_(before)
    if moved or not torch.equal(in_training, features_in_evaluation(backbone, noise)):
        return "the backbone is frozen, but still normalises by batches or drops activations; set `bn: eval`"
    return None


def _refuse_full_disk(kept: KeptFeatures, images: int) -> None:
    there = next(place for place in kept.folder.parents if place.is_dir())
    needed, free = (images - len(kept)) * kept.bytes_per_image, shutil.disk_usage(there).free
    if needed > free:
        raise ValueError(
            f"Expected `data.cache` to be on a disk with room for the features of {images} images, but {kept.folder} "
            f"needs {needed / 2**20:,.1f} MiB and has {free / 2**20:,.1f}. Choose another folder, a backbone with "
            "fewer cells or channels, or null."
        )
