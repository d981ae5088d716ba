"""The decision threshold of multilabel models: the logit from which a label counts as present.

Source: Schlinge et al. 2025 (QuanProto): the middle between the mean logit of present and of absent labels. Deviation:
one number over the whole validation split and all processes; the released code takes one per evaluated batch.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from lightning import LightningModule
from torch import Tensor, distributed

from callbacks.evaluation.images_per_forward import images_per_forward
from callbacks.evaluation.observer import Images, Observer
from callbacks.evaluation_mode import evaluation_mode
from explanations import Upsample
from lightning_modules.contract import InterpretableModel


def threshold_of(model: object) -> Tensor | None:
    """The scalar buffer that holds a model's decision threshold, or None for one label per image."""
    return getattr(model, "decision_threshold", None)


@torch.no_grad()
def fit_threshold(module: LightningModule, datamodule: Any, memory_budget: float = 1.0) -> None:
    """Set ``decision_threshold`` to (mean logit of present labels + mean logit of absent labels) / 2.

    Sums are in float64 over forwards of one size, so that the batch size and the number of processes do not move it.

    Args:
        module: a multilabel model.
        datamodule: whose whole validation split is read, each image once over all processes.
        memory_budget: GiB for the activations of one forward.

    Raises:
        ValueError: if no image of the validation split has a label, or all images have all; for logits that are not
            finite, with the sample ids.
    """
    sums = torch.zeros(2, dtype=torch.float64, device=module.device)
    counts = torch.zeros(2, dtype=torch.int64, device=module.device)
    with evaluation_mode(module):
        chunk, _ = images_per_forward(module, datamodule.image_size, module.device, memory_budget)
        observer = Observer(cast(InterpretableModel, module), Upsample(), chunk, top_k=1)
        for batch in datamodule.val_dataloader():
            pixels, keys, labels = (
                batch[name].to(module.device, non_blocking=True) for name in ("image", "sample_key", "labels")
            )
            logits = observer.see(Images(pixels, keys, batch["sample_id"])).logits.double()
            for row, present in enumerate((labels, ~labels)):
                sums[row] += (logits * present).sum()
                counts[row] += present.sum()
        observer.refuse_broken()
    if distributed.is_initialized():
        distributed.all_reduce(sums)
        distributed.all_reduce(counts)
    if not counts.all():
        raise ValueError(
            "Expected the validation split to have present and absent labels, from which the decision threshold of a "
            f"multilabel model comes, but got {int(counts[0])} and {int(counts[1])}. Choose another validation split, "
            "or none: then the threshold is 0."
        )
    threshold = threshold_of(module)
    assert threshold is not None
    threshold.copy_((sums / counts).mean())
