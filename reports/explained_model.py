"""A model with its data and an explainer: every image explained, every unit with the photo it stands for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from explanations import Explainer, Targets, UnitView, choose_explainer, unit_view, unit_views
from explanations.choice import description
from explanations.unit_view import part_in
from explanations.views import fit, to_image
from lightning_modules.contract import InterpretableModel, ModelOutput
from reports.additive import AdditiveTable, Line, additive_tables, image_of
from reports.cautions import best_similarities, cautions
from reports.scan import labels_of
from reports.unit_sources import Source, UnitSources, known_parts

_CHUNK = 8  # images explained at once


@dataclass(frozen=True)
class Row:
    """A line of an additive table with its pictures.

    Args:
        line: the numbers.
        name: of the unit or cell.
        view: what it saw of the image.
        part: in the box, where known.
        source: the photo that stands for the unit; None for cells, and where no training images are at hand.
        flags: what to beware of.
    """

    line: Line
    name: str
    view: UnitView
    part: str | None
    source: Source | None
    flags: tuple[str, ...]


@dataclass(frozen=True)
class ExplainedImage:
    """One image and how its logits come about.

    Args:
        sample_id: of the image.
        photo: the picture.
        truth: names of its classes, none if unknown.
        predicted: the class with the largest logit.
        correct: whether it is one of the image's; None if unknown.
        abstains: whether the model decides nothing.
        uncropped: whether it is a whole photo, for a model that was trained on crops.
        tables: of the classes with the largest logits, with their rows.
        output: of the model, for one image.
    """

    sample_id: str
    photo: Image.Image
    truth: tuple[str, ...]
    predicted: int
    correct: bool | None
    abstains: bool
    uncropped: bool
    tables: list[tuple[AdditiveTable, list[Row]]]
    output: ModelOutput = field(repr=False)


class ExplainedModel:
    """Explains images and units, each picture made once.

    Args:
        model: in evaluation mode.
        datamodule: an ``ImageDataModule`` of the data it was trained on, or of others.
        explainer: makes the maps; by default PRP where it supports the model, else upsampled maps.
        size: longer side of the pictures in pixels, at most 256.
        class_names: of the K logits; those of the data by default.
        kept: file that keeps what a comparison of an image with training images takes, None for none.

    Raises:
        ValueError: if the explainer does not support the model, or the size is out of range.
    """

    def __init__(
        self,
        model: InterpretableModel,
        datamodule: Any,
        explainer: Explainer | None = None,
        size: int = 144,
        class_names: Sequence[str] | None = None,
        kept: Path | None = None,
    ) -> None:
        if not 32 <= size <= 256:
            raise ValueError(f"Expected argument `size` to be between 32 and 256 pixels, but got {size}.")
        self.model, self.datamodule, self.size, self.kept = model, datamodule, size, kept
        self.explainer = choose_explainer(explainer, model)
        self.explained_by = description(self.explainer)
        self.units = model.units()
        self.class_names: list[str] = list(class_names or datamodule.class_names)
        self.parts: list[str] = known_parts(self.units, datamodule)
        self.concept_names: list[str] = datamodule.tables.concept_names
        self.sources = UnitSources(model, datamodule, self.explainer, self.class_names, size)

    def unit_name(self, unit: int) -> str:
        """What a unit is called: the concept or class it stands for, else its kind and number."""
        if self.units.kind == "class":
            return self.class_names[unit]
        if self.units.concepts is not None and (concept := int(self.units.concepts[unit])) >= 0:
            return self.concept_names[concept]
        return f"{self.units.kind} {unit}"

    @cached_property
    def _reference(self) -> Tensor | None:
        """The highest similarity of each of some training images; None where scores are no similarities."""
        similar = self.units.kind == "prototype" and self.sources.there
        return best_similarities(self.sources, self.kept) if similar else None

    def cautions(self, explained: ExplainedImage) -> list[str]:
        """What to know before the explanation of an image is read.

        Args:
            explained: the image.
        """
        boxes, best = [row.view.box for row in explained.tables[0][1]], float(explained.output.scores.max())
        return cautions(boxes, self.model.geometry.image, best, self._reference, explained.uncropped)

    # -- images ------------------------------------------------------------------------------------------------------
    def explain(
        self, samples: Sequence[Mapping[str, Any]], page: str = "the page", classes: int = 3, most: int = 5
    ) -> list[ExplainedImage]:
        """Explain images.

        Args:
            samples: with ``image`` and ``sample_id``; with ``label`` or ``labels`` where they are known.
            page: named if a table does not add up.
            classes: how many of the largest logits.
            most: lines of each table.

        Raises:
            ValueError: if the contributions do not sum to the logit.
        """
        explained = []
        for first in range(0, len(samples), _CHUNK):
            explained += self._explain(samples[first : first + _CHUNK], page, classes, most)
        return explained

    def _explain(
        self, samples: Sequence[Mapping[str, Any]], page: str, classes: int, most: int
    ) -> list[ExplainedImage]:
        images = torch.stack([sample["image"] for sample in samples]).to(self.units.active.device)
        with torch.no_grad():
            output = self.model(images)
        order = output.logits.argsort(dim=1, descending=True, stable=True)[:, :classes].tolist()
        tables = additive_tables(self.model, output, order, most)
        for sample, own in zip(samples, tables, strict=True):
            for table in own:
                table.check(page, str(sample["sample_id"]), self.class_names[table.label])
        views = self._views(samples, images, tables)
        explained = []
        for index, (sample, own) in enumerate(zip(samples, tables, strict=True)):
            truth = labels_of(sample)[0] if "label" in sample or "labels" in sample else ()
            explained.append(
                ExplainedImage(
                    sample_id=str(sample["sample_id"]),
                    photo=fit(to_image(sample["image"]), self.size),
                    truth=tuple(self.class_names[label] for label in truth),
                    predicted=order[index][0],
                    correct=order[index][0] in truth if truth else None,
                    abstains="abstain" in output.extras and bool(output.extras["abstain"][index]),
                    uncropped=bool(sample.get("uncropped")),
                    tables=[(table, self._rows(sample, table, views[index])) for table in own],
                    output=image_of(output, index),
                )
            )
        return explained

    def _views(
        self, samples: Sequence[Mapping[str, Any]], images: Tensor, tables: list[list[AdditiveTable]]
    ) -> list[dict[tuple[int, Any], UnitView]]:
        """By unit and cell, what the lines of each image's tables saw."""
        wanted = [list(dict.fromkeys(line.unit for table in own for line in table.lines)) for own in tables]
        if not (width := max(map(len, wanted))):  # no unit is active, as in a tree that was pruned to one leaf
            return [{} for _ in samples]
        ids = torch.tensor([units + units[:1] * (width - len(units)) for units in wanted])
        keys = torch.stack([sample["sample_key"] for sample in samples]) if "sample_key" in samples[0] else None
        found: list[dict[tuple[int, Any], UnitView]] = []
        for row, units in zip(
            unit_views(self.explainer, self.model, images, ids, self.size, keys), ids.tolist(), strict=True
        ):
            found.append({(unit, None): view for unit, view in zip(units, row, strict=True)})
        if self.units.kind == "class":
            self._add_cells(images, tables, found)
        return found

    def _add_cells(
        self, images: Tensor, tables: list[list[AdditiveTable]], found: list[dict[tuple[int, Any], UnitView]]
    ) -> None:
        """The fields of view of cells."""
        for image, own, views in zip(images, tables, found, strict=True):
            for table in own:
                ids = Targets("unit", torch.tensor([[table.label]], device=images.device))
                saliency = self.explainer.attribute(self.model, image[None], ids)[0, 0]
                for line in table.lines:
                    box = self.model.geometry.cell_box(*(line.cell or (0, 0)), "receptive_field")
                    views[line.unit, line.cell] = unit_view(image, saliency, self.size, box)

    def _rows(
        self, sample: Mapping[str, Any], table: AdditiveTable, views: Mapping[tuple[int, Any], UnitView]
    ) -> list[Row]:
        rows = []
        sources = self.sources.of([line.unit for line in table.lines])
        for line in table.lines:
            view, source = views[line.unit, line.cell], sources.get(line.unit)
            name = self.unit_name(line.unit) if line.cell is None else f"cell {line.cell[0] + 1}, {line.cell[1] + 1}"
            part = part_in(view.box, sample, self.parts)
            rows.append(Row(line, name, view, part, source, self._flags(sample, table, line, view, source)))
        return rows

    def _flags(
        self, sample: Mapping[str, Any], table: AdditiveTable, line: Line, view: UnitView, source: Source | None
    ) -> tuple[str, ...]:
        height, width = sample["image"].shape[1:]
        x0, y0, x1, y1 = view.box or (1, 1, 1, 1)
        flags = {
            "of another class": self.units.kind == "prototype" and not bool(self.units.owner[line.unit, table.label]),
            "negative weight": line.weight is not None and line.weight < 0,
            "flat map": view.box is None,
            "box at the border": line.cell is None and (min(x0, y0) == 0 or x1 == width - 1 or y1 == height - 1),
            "this very image is its source": source is not None and source.sample_id == sample["sample_id"],
            "changed since its projection": source is not None and source.stale,
        }
        return tuple(flag for flag, holds in flags.items() if holds)
