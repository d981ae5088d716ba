"""The one way to show a whole split to a model outside an evaluation: in fixed chunks, on all processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor

from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.forward.images_per_forward import images_per_forward
from protometry.callbacks.forward.observer import Images, Observer, Outputs
from protometry.callbacks.trainer_parts import model_of
from protometry.explanations import Upsample
from protometry.run_folder.command_line.processes import gathered
from protometry.run_folder.command_line.progress import track


@torch.no_grad()
def walk(
    module: LightningModule,
    batches: Iterable[dict[str, Any]],
    image_size: tuple[int, int],
    memory_budget: float | None = None,
    keep_maps: bool = False,
    text: str = "Looking at images",
) -> Iterator[tuple[dict[str, Any], Outputs]]:
    """Show every batch to a model in evaluation mode.

    All forwards have the same size, so that outputs are equal bit for bit whatever the batch size, the order and the
    number of processes. Every process walks over its own share: sums have to be reduced by the caller.

    Args:
        module: an interpretable model; afterwards in the mode it was in.
        batches: a loader that gives each image once over all processes, such as ``projection_dataloader``, the training
            images through the evaluation transform.
        image_size: ``(H, W)`` pixels.
        memory_budget: GiB for the activations of one forward; None for the default of the device.
        keep_maps: whether to keep the maps of all units.
        text: what the progress bar says.

    Yields:
        A batch on the device of the model, and the outputs for it.

    Raises:
        ValueError: for outputs that are not finite, with the sample ids.
    """
    with evaluation_mode(module):
        chunk, _ = images_per_forward(module, image_size, module.device, memory_budget)
        observer = Observer(model_of(module), Upsample(), chunk, top_k=1)
        for batch in track(batches, text):
            moved: dict[str, Any] = {
                name: value.to(module.device, non_blocking=True) if isinstance(value, Tensor) else value
                for name, value in batch.items()
            }
            images = Images(moved["image"], moved["sample_key"], moved["sample_id"])
            yield moved, observer.see(images, keep_maps=keep_maps)
        observer.refuse_broken()


def gather_outputs(
    walked: Iterable[tuple[dict[str, Any], Outputs]],
    fields: Callable[[dict[str, Any], Outputs], tuple[Tensor, ...]],
) -> list[Tensor]:
    """The sample keys of all images on all processes in ascending order, and fields of them, in the host's memory.

    Args:
        walked: from :func:`walk`.
        fields: of a batch and the outputs for it, one row per image.
    """
    own = [[tensor.cpu() for tensor in (batch["sample_key"], *fields(batch, outputs))] for batch, outputs in walked]
    columns = zip(*(part for share in gathered(own) for part in share), strict=True)
    keys, *values = (torch.cat(column) for column in columns)
    order = keys.argsort()
    return [keys[order], *(column[order] for column in values)]
