"""Facts that an evaluation needs before it sees an image: about the model, the data and the explainer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from protometry.callbacks.evaluation.threshold import threshold_of
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

_MASKED_AS = {"leg": "foot"}  # group of points -> part of a label map, where the words differ


def gather_facts(
    datamodule: Any,
    split: str,
    model: InterpretableModel,
    output: ModelOutput,
    explainer: Explainer,
    variant: Variant,
) -> Facts:
    """The facts that decide which metrics of the suite apply.

    Args:
        datamodule: an ``ImageDataModule``.
        split: which of its splits.
        model: whose units are measured.
        output: of the model, for its shapes.
        explainer: makes the saliency.
        variant: of the metrics.
    """
    capabilities: Capabilities = datamodule.capabilities(split)
    units, tables = model.units(), datamodule.tables
    threshold = threshold_of(model)
    return Facts(
        num_classes=output.logits.shape[1],
        multi_label=capabilities.multi_label is True,
        active=units.active,
        owner=units.owner,
        missing=capabilities.missing,
        weight=units.weight,
        vectors=None if units.kind == "class" else units.vectors,  # weights of a class are not a prototype
        channels=None if output.latent is None else output.latent.shape[1],
        image_size=datamodule.image_size,
        num_parts=len(tables.part_names),
        part_groups=None if tables.part_to_group is None else _members(tables.part_to_group.tolist()),
        explained=_why_not(explainer, units.active),
        variant=variant,
        abstains="abstain" in output.extras,
        residual="residual" in output.extras,
        threshold=0.0 if threshold is None else float(threshold),
        presence=units.presence,
        concepts=units.concepts,
        nameable=units.concepts is not None or units.kind in ("prototype", "feature"),
        own_values=model.values if isinstance(model, Intervenable) else None,
        percentiles=isinstance(model, Intervenable) and bool(model.percentiles.isfinite().all()),
        decides_by_tree=isinstance(model, DecidesByTree),
        by_cell=units.kind == "class",
        **_class_tables(datamodule, output.logits.shape[1], units.active.device),
    )


def _class_tables(datamodule: Any, num_classes: int, device: torch.device) -> dict[str, Any]:
    """What is known about the classes of the model; nothing if the tables describe other classes."""
    tables: ClassTables = datamodule.tables
    groups = {"concept_to_group": tables.concept_to_group.to(device)} if tables.concept_names else {}
    if datamodule.loading.classes is not None:
        return groups | {"training": "the images are not of the data the model was trained on"}
    names = ("class_concepts", "class_concepts_binary", "class_attributes")
    own = {name: getattr(tables, name) for name in names}
    rows: dict[str, Any] = {
        name: table.to(device) for name, table in own.items() if table is not None and len(table) == num_classes
    }
    parts = tables.concept_to_part
    codes = [tables.label_map_codes.get(_MASKED_AS.get(name, name), ()) for name in tables.part_group_names]
    rows["part_codes"] = codes
    return rows | groups | ({} if parts is None else {"concept_to_part": parts.to(device)})


def left_out_concepts(datamodule: Any, units: UnitTable) -> list[str] | None:
    """Names of the concepts that a concept model could not learn, which its inactive units stand for.

    Args:
        datamodule: of the data the model was trained on.
        units: of the model.

    Returns:
        None for models of other units, and for other data, whose concepts have other names.
    """
    if units.kind != "concept" or units.concepts is None or datamodule.loading.classes is not None:
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


def _members(groups: Sequence[int]) -> list[list[int]]:
    """Parts by group: [0, 1, 0] -> [[0, 2], [1]]."""
    return [[part for part, group in enumerate(groups) if group == one] for one in sorted(set(groups))]
