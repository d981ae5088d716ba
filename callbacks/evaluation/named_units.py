"""Which concepts the units of a model stand for and how frequent these are, both taken from the training images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor

from protometry.callbacks.forward.walk import gather_outputs, walk
from protometry.metrics import functional
from protometry.metrics.facts import Facts
from protometry.metrics.needs import NEEDS
from protometry.metrics.primitives.truth import truth_of
from protometry.metrics.suite import ENTRIES
from protometry.run_folder.command_line.processes import add_up

LEAST_AREA = 0.6
BY_MODEL = "model"
BY_AREA = f"largest area under the ROC curve on the training images, at least {LEAST_AREA}"


def needs_names(keys: Sequence[str], facts: Facts) -> bool:
    """Whether some metric needs units that stand for concepts and applies once they are named."""
    wanted = [set(ENTRIES[key].needs) for key in keys if "named_units" in ENTRIES[key].needs]
    missing = {need for need in ("weight", "single_label", "training") if NEEDS[need](facts)}
    labels = ("concepts_class", "concepts_image")
    nameable = facts.units.concepts is not None or facts.units.kind in ("prototype", "feature")
    known = any(facts.missing(flag) is None for flag in labels) and nameable
    return known and not missing and bool(wanted)


@torch.no_grad()
def units_with_concepts(facts: Facts, module: LightningModule, datamodule: Any, memory_budget: float | None) -> Facts:
    """Name the units of a model that has no names for them, and count the concepts in the training images.

    A unit without a name is named after the concept its scores predict best on the training images (through the
    evaluation transform), by the area under the ROC curve (ties: the lower index); inactive units and units below 0.6
    get no name. Areas are exact over processes: each holds all scores, 4 bytes per image and unit.

    Raises:
        ValueError: if the model names a concept that the data do not have.
    """
    concepts = facts.units.concepts
    if concepts is not None and int(concepts.max()) >= datamodule.num_concepts:
        raise ValueError(
            f"Expected data with the concepts of the model, which are {int(concepts.max()) + 1} or more, but "
            f"{type(datamodule).__name__} has {datamodule.num_concepts}."
        )
    if concepts is None:
        batches = walk(module, datamodule.projection_dataloader(), datamodule.image_size, memory_budget)
        _, scores, labels = gather_outputs(
            batches, lambda batch, seen: (seen.scores.float(), truth_of(batch, "concepts"))
        )
        area = functional.concept_auc(scores.to(facts.active.device), labels.to(facts.active.device))
        concepts = functional.name_units(area, LEAST_AREA).masked_fill(~facts.active, -1)
        shares = labels.double().nanmean(dim=0)
    else:
        shares = _shares(datamodule, facts.active.device)
    order = shares.nan_to_num(nan=-1.0).argsort(descending=True, stable=True).to(facts.active.device)
    return replace(facts, unit_concepts=concepts.masked_fill(~facts.active, -1), concept_order=order)


def _shares(datamodule: Any, device: torch.device) -> Tensor:
    """``(L,)`` float64, the share of training images with each concept, among those that say so, over all processes."""
    if datamodule.capabilities("projection").concepts_image is not True:  # every image has the concepts of its class
        rows = torch.as_tensor(datamodule.dataset("projection").labels)
        shares: Tensor = datamodule.tables.class_truth[rows].double().nanmean(dim=0)
        return shares
    counts = torch.zeros(2, datamodule.num_concepts, dtype=torch.int64, device=device)
    for batch in datamodule.projection_dataloader():
        truth = truth_of(batch, "concepts")
        counts += torch.stack([truth == 1, ~truth.isnan()]).sum(dim=1).to(device)
    add_up(counts)
    return counts[0].double() / counts[1]
