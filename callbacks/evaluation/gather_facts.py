"""Facts that an evaluation needs before it sees an image: about the model, the data and the explainer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from protometry.callbacks.evaluation.exchanged_units import not_exchangeable
from protometry.callbacks.evaluation.threshold import threshold_of
from protometry.callbacks.forward.untrained_backbone import backbone_parameters, backbone_stages
from protometry.datamodules.sample import Capabilities, ClassTables
from protometry.explanations import Explainer
from protometry.lightning_modules.contract import (
    DecidesByTree,
    InterpretableModel,
    Intervenable,
    ModelOutput,
    UnitTable,
)
from protometry.metrics.facts import Facts
from protometry.metrics.functional import Variant
from protometry.metrics.suite import ENTRIES


def gather_facts(
    datamodule: Any,
    split: str,
    model: InterpretableModel,
    output: ModelOutput,
    explainer: Explainer,
    variant: Variant,
) -> Facts:
    """The facts that decide which metrics of the suite apply."""
    capabilities: Capabilities = datamodule.capabilities(split)
    units, threshold, num_classes = model.units(), threshold_of(model), output.logits.shape[1]
    return Facts(
        num_classes=num_classes,
        multi_label=capabilities.multi_label is True,
        units=replace(units, vectors=None) if units.kind == "class" else units,
        tables=_own_tables(datamodule, num_classes, units.active.device),
        missing=capabilities.missing,
        channels=None if output.latent is None else output.latent.shape[1],
        image_size=datamodule.image_size,
        explained=_why_not(explainer, units.active),
        variant=variant,
        abstains="abstain" in output.extras,
        residual="residual" in output.extras,
        context="context" in output.extras,
        unit_concepts=units.concepts if "context" in output.extras else None,  # else named where a metric needs it
        threshold=0.0 if threshold is None else float(threshold),
        own_values=model.values if isinstance(model, Intervenable) else None,
        percentiles=isinstance(model, Intervenable) and bool(model.percentiles.isfinite().all()),
        training=None if _is_own(datamodule) else "the images are not of the data the model was trained on",
        decides_by_tree=isinstance(model, DecidesByTree),
        has_backbone=bool(backbone_parameters(model)),
        stages=backbone_stages(model),
        exchange=not_exchangeable(model),
        stamp=getattr(datamodule, "stamp", None),  # a data module of another kind has none
    )


def _is_own(datamodule: Any) -> bool:
    """Whether the data have the classes the model was trained on."""
    return datamodule.loading.classes is None


def _own_tables(datamodule: Any, num_classes: int, device: torch.device) -> ClassTables:
    """The tables of the data, without what they say about other classes than the model's."""
    tables: ClassTables = datamodule.tables
    if not _is_own(datamodule):
        return replace(tables, class_concepts=None, class_attributes=None, concept_to_part=None, label_map_codes={})

    def own(table: Tensor | None) -> Tensor | None:
        return None if table is None or len(table) != num_classes else table.to(device)

    part = tables.concept_to_part
    return replace(
        tables,
        class_concepts=own(tables.class_concepts),
        class_attributes=own(tables.class_attributes),
        concept_to_part=None if part is None else part.to(device),
    )


def left_out_concepts(datamodule: Any, units: UnitTable) -> list[str] | None:
    """Names of the concepts that a concept model could not learn, which its inactive units stand for.

    Args:
        datamodule: of the data the model was trained on.
        units: of the model.

    Returns:
        None for models of other units, and for other data, whose concepts have other names.
    """
    if units.kind == "concept" and units.names is not None:
        return [units.names[index] for index in (~units.active).nonzero().flatten().tolist()]
    if units.kind != "concept" or units.concepts is None or not _is_own(datamodule):
        return None
    return [datamodule.tables.concept_names[index] for index in units.concepts[~units.active].tolist()]


def object_annotation(keys: Iterable[str], datamodule: Any, split: str) -> str | None:
    """The annotation that stands for the object in localisation and ``alignment/on_object``."""
    if not any(ENTRIES[key].view == "localisation" for key in keys):
        return None
    return "bounding box" if datamodule.capabilities(split).missing("object_mask") else "mask"


def refuse_repeated(datamodule: Any, split: str) -> None:
    """Refuse repeated images, which would count twice.

    Raises:
        ValueError: if a sample id of the split repeats.
    """
    repeated = [name for name, count in Counter(datamodule.dataset(split).sample_ids).items() if count > 1]
    if repeated:
        raise ValueError(
            f"Expected every sample id of the {split} split once, but got {len(repeated)} of them several times, such "
            f"as {', '.join(repeated[:5])}. Fix the split file or the tables of the data set."
        )


def _why_not(explainer: Explainer, active: Tensor) -> str | None:
    if not active.any():
        return "no unit is active"
    return None if "unit" in explainer.explains else f"explainer {explainer.key!r} explains classes only"
