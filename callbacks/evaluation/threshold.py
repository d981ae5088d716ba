"""The decision threshold of multilabel models: the logit above which a label counts as present.

Source: Schlinge et al. 2025 (QuanProto): the midpoint of the mean logits of present and of absent labels. Deviation:
one number over the whole validation split and all processes; the released code takes one per evaluated batch.
"""

from __future__ import annotations

from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor

from protometry.callbacks.forward.walk import walk
from protometry.metrics.primitives.truth import truth_of
from protometry.run_folder.command_line.processes import add_up


def threshold_of(model: object) -> Tensor | None:
    """The scalar buffer that holds a model's decision threshold, or None for one label per image."""
    return getattr(model, "decision_threshold", None)


@torch.no_grad()
def fit_threshold(module: LightningModule, datamodule: Any, memory_budget: float | None = None) -> None:
    """Set ``decision_threshold`` to (mean logit of present labels + mean logit of absent labels) / 2.

    Unknown labels are neither.

    Sums are in float64, so that the batch size and the number of processes do not move it.

    Raises:
        ValueError: if no image of the validation split has a label, or all images have all; for logits that are not
            finite, with the sample ids.
    """
    sums = torch.zeros(2, dtype=torch.float64, device=module.device)
    counts = torch.zeros(2, dtype=torch.int64, device=module.device)
    for batch, outputs in walk(module, datamodule.val_dataloader(), datamodule.image_size, memory_budget):
        logits, labels = outputs.logits.double(), truth_of(batch, "labels")
        for row, chosen in enumerate((labels == 1, labels == 0)):
            sums[row] += (logits * chosen).sum()
            counts[row] += chosen.sum()
    add_up(sums, counts)
    if not counts.all():
        raise ValueError(
            "Expected the validation split to have present and absent labels, to fit the decision threshold of the "
            f"multilabel model on, but got {int(counts[0])} and {int(counts[1])}. Choose another validation split, "
            "or none: then the threshold is 0."
        )
    threshold = threshold_of(module)
    assert threshold is not None
    threshold.copy_((sums / counts).mean())
