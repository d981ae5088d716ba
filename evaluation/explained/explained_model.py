"""A model with its data and an explainer: every image explained, every unit with the photo it stands for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from protometry.datamodules.transforms.placement import Placement, box_on_photo
from protometry.evaluation.explained.additive import AdditiveTable, Line, additive_tables, by_place, image_of
from protometry.evaluation.explained.cautions import cautions
from protometry.evaluation.explained.scan import classes_of, cpu_threshold, labels_of, unknown_of
from protometry.evaluation.explained.stored_sources import StoredSources
from protometry.evaluation.explained.unit_sources import Source, UnitSources, known_parts
from protometry.explanations import Explainer, Targets, UnitView, choose_explainer, unit_view
from protometry.explanations.choice import description, supporting
from protometry.explanations.unit_view import concept_name, part_boxes, part_in, same_places, unit_name
from protometry.explanations.views import Box, fit, scaled_box, to_image
from protometry.lightning_modules.contract import InterpretableModel, ModelOutput, predicted_classes
from protometry.metrics.primitives.checks import check_at_least
from protometry.metrics.primitives.intersection_over_union import box_intersection_over_union, places
from protometry.run_folder.command_line.progress import track

_CHUNK = 8  # images explained at once
_CONTRAST = 3  # lines of the contrast with another class
_FEWEST, _TIMES = 15, 3  # units looked at, and times as many as lines, since several may look at one place
Change = Callable[[ModelOutput], ModelOutput]


@dataclass(frozen=True)
class UnitRow:
    """A line of an additive table with its pictures.

    Args:
        same: names of others at the same place.
        view: what it saw of the image.
        part: in the box, where known.
        source: the photo that stands for the unit; None for cells, and where no training images are at hand.
    """

    number: int
    line: Line
    name: str
    same: tuple[str, ...]
    view: UnitView
    part: str | None
    source: Source | None
    flags: tuple[str, ...]

    @property
    def title(self) -> str:
        """What it is called, with the part in its box."""
        return f"{self.name} · {self.part}" if self.part else self.name


@dataclass(frozen=True)
class ExplainedImage:
    """One image and how its logits come about.

    Args:
        whole: the picture as the model sees it.
        truth: names of its classes, none if unknown.
        predictions: the predicted classes: one, none where the model abstains, any number if multilabel.
        predicted: their names, "nothing" without any.
        answer: what the model predicts: its class with the probability, or all labels.
        named_class: the class with the largest logit, which is explained, and its probability.
        correct: whether they are exactly those of the image; None if unknown.
        mistakes: what the image shows instead, as :meth:`ExplainedModel.mistakes` says it.
        cautions: what to know before the explanation is read.
        tables: of the classes with the largest logits, with their rows.
        contrast: of the first class with the right one where it is wrong, else with the next one, in at most three
            rows; of multilabel data with the threshold, and of a tree the path.
        placement: where the photo of a user lies in the picture; None for images of the data.
        photo_size: width and height in pixels of that photo, or of the picture.
    """

    sample_id: str
    whole: Image.Image
    truth: tuple[str, ...]
    predictions: tuple[int, ...]
    predicted: str
    answer: str
    named_class: str
    correct: bool | None
    mistakes: tuple[tuple[str, str], ...]
    abstains: bool
    cautions: list[str]
    tables: list[tuple[AdditiveTable, list[UnitRow]]]
    contrast: tuple[AdditiveTable, list[UnitRow]]
    output: ModelOutput = field(repr=False)
    placement: Placement | None = None
    photo_size: tuple[int, int] = (0, 0)

    @property
    def label(self) -> int:
        """The class with the largest logit, which is explained first."""
        return self.tables[0][0].label

    def on_photo(self, box: Box) -> Box | None:
        """A box of the picture in pixels of the photo; None in the margin beside it."""
        return box if self.placement is None else box_on_photo(box, self.placement)

    def numbered(self, rows: Sequence[UnitRow], size: int) -> tuple[Image.Image, dict[int, Box]]:
        """The picture, and the boxes of rows in it by the numbers of the rows; none of what is absent, in a tree."""
        picture = fit(self.whole, size)
        boxes = [(row.number, row.view.box) for row in rows if row.view.box and not row.line.is_absent]
        return picture, {number: scaled_box(box, self.whole, picture) for number, box in boxes}


def _unchanged(output: ModelOutput) -> ModelOutput:
    return output


def no_pages(explainer: Explainer) -> str | None:
    """Why an explainer cannot make pages, which show units; None if it can."""
    return None if "unit" in explainer.explains else f"explainer {explainer.key!r} explains classes only"


class ExplainedModel:
    """Explains images and units, each picture made once.

    Args:
        explainer: makes the maps; by default the one that ``choose_explainer`` finds for the model.
        size: longer side of the pictures in pixels, at most 256.
        sources: the photos that stand for the units; by default those of the data.

    Raises:
        ValueError: if the explainer does not support the model or explains no units, or the size is out of range.
    """

    def __init__(  # noqa: PLR0913 - names and sources differ only where the data are not at hand
        self,
        model: InterpretableModel,
        datamodule: Any,
        explainer: Explainer | None = None,
        size: int = 144,
        class_names: Sequence[str] | None = None,
        concept_names: Sequence[str] | None = None,
        sources: UnitSources | StoredSources | None = None,
    ) -> None:
        if not 32 <= size <= 256:
            raise ValueError(f"Expected argument `size` to be between 32 and 256 pixels, but got {size}.")
        self.model, self.datamodule, self.size = model, datamodule, size
        self.explainer = choose_explainer(explainer, model)
        if reason := no_pages(self.explainer):
            raise ValueError(
                f"Expected argument `explainer` to explain units, which pages and pictures show, but {reason}. Use one "
                f"of {', '.join(supporting(model, frozenset({'unit'})))}."
            )
        self.explained_by = description(self.explainer)
        self.units, self.threshold = model.units(), cpu_threshold(model)
        self.class_names: list[str] = list(class_names or datamodule.class_names)
        self.parts: list[str] = known_parts(self.units, datamodule)
        names = datamodule.tables.concept_names if concept_names is None else concept_names
        self.concept_names: list[str] = list(names)
        own = UnitSources(model, datamodule, self.explainer, self.class_names, size)
        self.sources: Any = sources or own  # pages of units need those of the data

    def unit_name(self, unit: int) -> str:
        """What a unit is called: the concept or class it stands for, else its kind and number."""
        return unit_name(self.units, unit, self.class_names, self.concept_names)

    def concept_name(self, unit: int) -> str | None:
        """The concept that a unit stands for; None without one, or if the names of the concepts are unknown."""
        return concept_name(self.units, unit, self.concept_names)

    def named(self, classes: Sequence[int]) -> str:
        """The names of classes, "nothing" without any."""
        return ", ".join(self.class_names[label] for label in classes) or "nothing"

    def mistakes(self, predictions: Sequence[int], truth: Sequence[int]) -> tuple[tuple[str, str], ...]:
        """What an image shows instead of what is predicted: what it "is", or which labels are "missing" or "surplus".

        Returns:
            Word and names of classes, nothing for a right prediction.
        """
        if self.threshold is None:
            return () if tuple(predictions) == tuple(truth) else (("is", self.named(truth)),)
        apart = {"missing": [label for label in truth if label not in predictions]}
        apart["surplus"] = [label for label in predictions if label not in truth]
        return tuple((what, self.named(labels)) for what, labels in apart.items() if labels)

    def _cautions(self, rows: Sequence[UnitRow], latent: Tensor | None, uncropped: bool) -> list[str]:
        geometry, neighbours = self.model.geometry, self.sources.neighbours
        unlike = [] if latent is None or neighbours is None else neighbours.cautions(latent)
        boxes = [row.view.box for row in rows]
        return [*geometry.caveats(), *unlike, *cautions(boxes, geometry.image, uncropped)]

    # -- images ------------------------------------------------------------------------------------------------------
    def explain(
        self, samples: Sequence[Mapping[str, Any]], page: str = "the page", classes: int = 3, most: int = 5,
        change: Change = _unchanged,
    ) -> list[ExplainedImage]:  # fmt: skip
        """Explain images.

        Args:
            samples: with ``image`` and ``sample_id``; with ``label`` or ``labels`` where they are known.
            page: named if a table does not add up.
            classes: how many of the largest logits.
            most: lines of each table; units that look at the same place, by the rule of
                :func:`.places`, share one, unless they are concepts.
            change: what becomes of the outputs before they are explained.

        Raises:
            ValueError: if ``classes`` is below 1 or ``most`` negative, or the contributions do not sum to the logit.
        """
        check_at_least("classes", classes, 1)
        check_at_least("most", most, 0)
        explained = []
        for first in track(range(0, len(samples), _CHUNK), "Explaining images"):
            explained += self._explain(samples[first : first + _CHUNK], page, classes, most, change)
        return explained

    def _explain(
        self, samples: Sequence[Mapping[str, Any]], page: str, classes: int, most: int, change: Change
    ) -> list[ExplainedImage]:
        images = torch.stack([sample["image"] for sample in samples]).to(self.units.active.device)
        with torch.no_grad():
            output = change(self.model(images))
        tables = self._tables(output, samples, classes, most)
        for sample, own in zip(samples, tables, strict=True):
            for table in own:
                table.check(page, str(sample["sample_id"]), self.class_names[table.label])
        maps = self._maps(samples, images, tables)
        predictions = classes_of(predicted_classes(output.logits.cpu(), "abstain" in output.extras, self.threshold))
        explained = []
        for index, (sample, own) in enumerate(zip(samples, tables, strict=True)):
            truth = labels_of(sample)[0] if "label" in sample or "labels" in sample else ()
            unknown, seen = next(iter(unknown_of(sample)), ()), image_of(output, index)
            latent = None if output.latent is None else output.latent[index]
            known = bool(truth) or ("labels" in sample and len(unknown) < len(sample["labels"]))
            judged = tuple(label for label in predictions[index] if label not in unknown)
            rows = [self._lines(sample, table, maps[index], seen, most) for table in own[:-1]]
            first, predicted = own[0], self.named(predictions[index])
            few = min(most, _CONTRAST) if first.tree_path is None else most
            named_class = f"{self.class_names[first.label]}, {100 * first.probability:.1f} %"
            single = self.threshold is None and predictions[index]
            explained.append(
                ExplainedImage(
                    sample_id=str(sample["sample_id"]),
                    whole=(whole := to_image(sample["image"])),
                    truth=tuple(self.class_names[label] for label in truth),
                    predictions=predictions[index],
                    predicted=predicted,
                    answer=named_class if single else predicted,
                    named_class=named_class,
                    correct=judged == truth if known else None,
                    mistakes=self.mistakes(judged, truth) if known else (),
                    abstains="abstain" in output.extras and not predictions[index],
                    cautions=self._cautions(rows[0][1], latent, bool(sample.get("uncropped"))),
                    tables=rows,
                    contrast=self._lines(sample, own[-1], maps[index], seen, few),
                    output=seen,
                    placement=sample.get("placement"),
                    photo_size=sample.get("photo_size", whole.size),
                )
            )
        return explained

    def _tables(
        self, output: ModelOutput, samples: Sequence[Mapping[str, Any]], classes: int, most: int
    ) -> list[list[AdditiveTable]]:
        """For each image, the tables of the classes with the largest logits, and the contrast of the first of them."""
        apart = self.units.kind == "concept"  # each says something else of a place
        looked_at = most if apart else max(_FEWEST, _TIMES * most)
        order = output.logits.argsort(dim=1, descending=True, stable=True)[:, :classes].tolist()
        tables = additive_tables(self.model, output, order, looked_at)
        if self.threshold is not None or tables[0][0].tree_path is not None:
            return [[*own, own[0]] for own in tables]
        rivals = []
        for sample, (first, *_) in zip(samples, tables, strict=True):
            truth = labels_of(sample)[0] if "label" in sample else ()
            rivals.append(next((label for label in truth if label != first.label), first.rival))
        contrasts = additive_tables(self.model, output, [labels[:1] for labels in order], looked_at, rivals)
        return [[*own, contrast] for own, (contrast,) in zip(tables, contrasts, strict=True)]

    def _maps(
        self, samples: Sequence[Mapping[str, Any]], images: Tensor, tables: list[list[AdditiveTable]]
    ) -> list[dict[int, Tensor]]:
        """By unit, the maps ``(H, W)`` of all lines of each image's tables."""
        wanted = [list(dict.fromkeys(line.unit for table in own for line in table.lines)) for own in tables]
        if not (width := max(map(len, wanted))):  # no unit is active, as in a tree that was pruned to one leaf
            return [{} for _ in samples]
        ids = torch.tensor([units + units[:1] * (width - len(units)) for units in wanted], device=images.device)
        keys = None
        if "sample_key" in samples[0]:
            keys = torch.stack([sample["sample_key"] for sample in samples]).to(images.device)
        maps = self.explainer.attribute(self.model, images, Targets("unit", ids), sample_ids=keys).cpu()
        return [dict(zip(units, row, strict=True)) for units, row in zip(ids.tolist(), maps, strict=True)]

    def _lines(
        self, sample: Mapping[str, Any], table: AdditiveTable, maps: Mapping[int, Tensor], seen: ModelOutput, most: int
    ) -> tuple[AdditiveTable, list[UnitRow]]:
        """The table with a line for each place, and its rows."""
        table = by_place(table, self._places(table, maps), most)
        sources = self.sources.of([line.unit for line in table.lines])
        rows = []
        for number, line in enumerate(table.lines, start=1):
            parts = part_boxes(self.model, seen, 0, line.unit)
            view = unit_view(sample["image"], maps[line.unit], self.size, self._box(line), parts=parts)
            name, same = self._line_name(line), tuple(self._line_name(other) for other in line.same)
            part, source = part_in(view.box, sample, self.parts), sources.get(line.unit)
            flags = self._flags(sample, table, line, view, source)
            rows.append(UnitRow(number, line, name, same, view, part, source, flags))
        return table, rows

    def _places(self, table: AdditiveTable, maps: Mapping[int, Tensor]) -> list[int]:
        """The first line at the place of each, by the fields of view of cells, or by the maps of units."""
        if self.units.kind == "concept" or not table.lines:
            return [-1] * len(table.lines)
        if boxes := [box for line in table.lines if (box := self._box(line))]:
            corners = torch.tensor(boxes)
            overlaps = box_intersection_over_union(corners[:, None], corners[None])[None]
            return [int(first) for first in places(overlaps)[0]]
        return same_places(torch.stack([maps[line.unit] for line in table.lines]))

    def _box(self, line: Line) -> Box | None:
        """The field of view of a cell; None for a unit."""
        return None if line.cell is None else self.model.geometry.cell_box(*line.cell, "receptive_field")

    def _line_name(self, line: Line) -> str:
        return self.unit_name(line.unit) if line.cell is None else f"cell {line.cell[0] + 1}, {line.cell[1] + 1}"

    def _flags(
        self, sample: Mapping[str, Any], table: AdditiveTable, line: Line, view: UnitView, source: Source | None
    ) -> tuple[str, ...]:
        height, width = sample["image"].shape[1:]
        x0, y0, x1, y1 = view.box or (1, 1, 1, 1)
        own = bool(self.units.owner[line.unit, table.label])
        against = line.weight is not None and line.contribution.value * line.score < 0
        kind = "class" if self.threshold is None else "label"
        flags = {
            f"of another {kind}": self.units.kind == "prototype" and not own,
            f"counts against its own {kind}": self.units.kind == "prototype" and own and against,
            "flat map": view.box is None,
            "box at the border": line.cell is None and (min(x0, y0) == 0 or x1 == width - 1 or y1 == height - 1),
            "this very image is its source": source is not None and source.sample_id == sample["sample_id"],
            "changed since its projection": source is not None and source.stale,
        }
        return tuple(flag for flag, holds in flags.items() if holds)
