"""Pictures of the prototypes after every projection, in the run folder and in the loggers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from PIL import Image
from torch import Tensor

from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.run.drawing import drawing
from protometry.callbacks.run.loggers import log_images
from protometry.callbacks.trainer_parts import datamodule_of, model_of, phase_of
from protometry.explanations import Explainer, choose_explainer
from protometry.explanations.unit_view import part_in, unit_tile, unit_views
from protometry.explanations.views import Box, png, sheet
from protometry.lightning_modules.contract import InterpretableModel
from protometry.lightning_modules.phases import FIT_HEAD
from protometry.run_folder.atomic import write_new
from protometry.run_folder.csv_text import csv_text

TILE = 112  # longer side of each of the three pictures of a prototype, in pixels
COLUMNS = ["unit", "class", "sample_id", "row", "col", "x0", "y0", "x1", "y1", "distance", "weight", "duplicate_of"]


@dataclass(frozen=True)
class PrototypeRecord:
    """The source of one prototype.

    Args:
        label: class of the source image; for multilabel data the first label that owns the prototype.
        box: inclusive pixels (x0, y0, x1, y1) of the cell in the evaluation transform's frame.
        distance: to the patch before it was copied.
        weight: of the head towards ``label``, or None for models without a weight matrix.
        duplicate_of: the first unit with the same source patch, or None.
    """

    unit: int
    label: int
    class_name: str
    sample_id: str
    cell: tuple[int, int]
    box: Box
    distance: float
    weight: float | None
    duplicate_of: int | None

    @property
    def figures(self) -> str:
        """Distance and weight in words."""
        weight = "" if self.weight is None else f", weight {self.weight:.3g}"
        return f"distance {self.distance:.3g}{weight}"


class PrototypeMedia(Callback):
    """Draws the prototypes after each projection, on rank zero; those that are left where a solved last layer follows.

    Writes ``prototypes/<phase>-epoch<NN>.png``, one group of tiles per class, and a table of all active prototypes
    with the same name and ending ``.csv`` into the run folder; sends the tiles to the loggers as ``media/prototypes``.
    A tile is the source photo with the box around what the prototype saw most of, the map of the explainer and a crop
    (:func:`~protometry.explanations.unit_view.unit_view`). Where the data have masks, ``on_object`` of the table is the
    share of the cell that is object; no model sees a mask. A file that is already there with other content stays, and
    the new one gets a number.

    Args:
        limit: the most prototypes to draw, in the order of classes and units.
        explainer: makes the maps; by default the one that ``choose_explainer`` finds for the model.

    Raises:
        ValueError: if ``limit`` is below 1, or the explainer does not support the model.
    """

    def __init__(self, limit: int = 100, explainer: Explainer | None = None) -> None:
        if limit < 1:
            raise ValueError(f"Expected argument `limit` to be at least 1, but got {limit}.")
        self.limit = limit
        self.explainer = explainer

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse an explainer that does not support the model before it is trained."""
        if stage == "fit" and self.explainer is not None:
            with evaluation_mode(pl_module):
                choose_explainer(self.explainer, model_of(pl_module))

    @drawing("pictures of prototypes")
    def on_action_end(self, trainer: Trainer, module: LightningModule, action: str, report: dict[str, float]) -> None:
        """Draw after a projection, or once the last layer is solved that the phase enters with."""
        model = model_of(module)
        phase = phase_of(trainer, module)
        drawn = action == FIT_HEAD if FIT_HEAD in phase.on_enter else action.startswith("project")
        if not drawn or not trainer.is_global_zero:
            return
        datamodule = datamodule_of(trainer)
        multilabel = datamodule.capabilities("train").multi_label is True
        records = prototype_records(model, datamodule.class_names, multilabel)
        if not records:
            rank_zero_info("No prototype has a source image; none is drawn.")
            return
        limited = records[: self.limit]
        if len(limited) < len(records):
            rank_zero_info(f"Drawing {len(limited)} of {len(records)} prototypes (`limit` of PrototypeMedia).")
        masked = datamodule.capabilities("projection").object_mask is True
        samples = source_samples(records if masked else limited, datamodule.shown("projection"))
        with evaluation_mode(module):
            explainer = choose_explainer(self.explainer, model)
            tiles = draw_tiles(limited, samples, model, explainer, datamodule.tables.part_names)
        name = f"{phase.name.replace('/', '-')}-epoch{trainer.current_epoch:02d}"
        stem = Path(trainer.default_root_dir) / "prototypes" / name
        write_new(stem.with_name(f"{stem.name}.png"), png(prototypes_of_class(limited, tiles)))
        write_new(stem.with_name(f"{stem.name}.csv"), _table(records, samples if masked else {}))
        captions = [f"prototype {r.unit} · {r.class_name} · {r.figures}" for r in limited]
        log_images(trainer.loggers, "media/prototypes", tiles, captions, trainer.global_step)


def prototype_records(
    model: InterpretableModel, class_names: Sequence[str], multilabel: bool = False
) -> list[PrototypeRecord]:
    """The active units that have a source, ordered by class and unit."""
    units = model.units()
    if (source := units.source) is None:
        return []
    first = {unit: group[0] for group in source.duplicates() for unit in group[1:]}
    labels = units.owner.int().argmax(dim=1) if multilabel else source.label
    columns = (labels, source.row, source.col, source.box, source.distance)
    label, row, col, box, distance = (column.tolist() for column in columns)
    records = [
        PrototypeRecord(
            unit=unit,
            label=label[unit],
            class_name=class_names[label[unit]],
            sample_id=source.sample_id[unit],
            cell=(row[unit], col[unit]),
            box=(box[unit][0], box[unit][1], box[unit][2], box[unit][3]),
            distance=distance[unit],
            weight=None if units.weight is None else units.weight[label[unit], unit].item(),
            duplicate_of=first.get(unit),
        )
        for unit in (units.active & source.found.to(units.active.device)).nonzero().flatten().tolist()
    ]
    return sorted(records, key=lambda record: (record.label, record.unit))


def source_samples(records: Sequence[PrototypeRecord], dataset: Any) -> dict[str, dict[str, Tensor]]:
    """The sources of prototypes by sample id, each read once."""
    wanted = {record.sample_id for record in records}
    index = {sample_id: index for index, sample_id in enumerate(dataset.sample_ids) if sample_id in wanted}
    return {sample_id: dataset[index[sample_id]] for sample_id in sorted(wanted)}


def draw_tiles(
    records: Sequence[PrototypeRecord],
    samples: Mapping[str, dict[str, Any]],
    model: InterpretableModel,
    explainer: Explainer,
    part_names: Sequence[str] = (),
) -> list[Image.Image]:
    """One tile per prototype, of what it saw of its source."""
    images = torch.stack([samples[record.sample_id]["image"] for record in records])
    ids = torch.tensor([[record.unit] for record in records])
    tiles = []
    for record, (view,) in zip(records, unit_views(explainer, model, images, ids, TILE), strict=True):
        part = part_in(view.box, samples[record.sample_id], part_names)
        name = " · ".join([f"prototype {record.unit}", record.class_name, *([part] if part else [])])
        tiles.append(unit_tile(view, name, f"{record.figures}, {view.legend}"))
    return tiles


def prototypes_of_class(
    records: Sequence[PrototypeRecord], tiles: Sequence[Image.Image], columns: int = 5
) -> Image.Image:
    """The tiles, one group per class."""
    groups: dict[int, list[Image.Image]] = {}
    for record, tile in zip(records, tiles, strict=True):
        groups.setdefault(record.label, []).append(tile)
    names = {record.label: record.class_name for record in records}
    widest = max(len(group) for group in groups.values())
    return sheet(list(groups.values()), min(widest, columns), [names[label] for label in groups])


def _table(records: Sequence[PrototypeRecord], masked: Mapping[str, dict[str, Tensor]]) -> bytes:
    rows: list[Sequence[object]] = [[*COLUMNS, "on_object"]]
    for r in records:
        x0, y0, x1, y1 = r.box
        mask = masked[r.sample_id]["object_mask"] if masked else None
        share = None if mask is None else mask[y0 : y1 + 1, x0 : x1 + 1].double().mean().item()
        source = (r.unit, r.class_name, r.sample_id, *r.cell, *r.box)
        rows.append((*source, r.distance, r.weight, r.duplicate_of, share))
    return csv_text(rows).encode()
