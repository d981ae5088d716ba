"""The pictures of an item: photo, maps of classes on one scale, and units next to the photos they come from."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from protometry.evaluation.explained.scan import samples_of
from protometry.evaluation.explained.unit_sources import UnitSources
from protometry.explanations import Targets, unit_views
from protometry.explanations.heat import heat_map, scale_of
from protometry.explanations.views import crop, draw_box, fit, to_image
from protometry.studies.bundle import media_name
from protometry.studies.construction.method import StudiedModel
from protometry.studies.questions import POINTS
from protometry.studies.study import Item, ItemKey, Option, UnitShown

LARGE, SMALL = 448, 224  # longer side of photos and maps, and of the pictures of units, in pixels


def readable(names: Sequence[str]) -> list[str]:
    """Names of classes without the numbers and underscores of folders, unless two would then be alike.

    Example:
        >>> readable(["001.Black_footed_Albatross", "bird 3"])
        ['Black footed Albatross', 'bird 3']
    """
    plain = [re.sub(r"^\d+[._ -]+", "", name).replace("_", " ") for name in names]
    return plain if all(plain) and len(set(plain)) == len(set(names)) else list(names)


class Drawing:
    """Draws items of one arm."""

    def __init__(self, explained: StudiedModel, media: dict[str, bytes]) -> None:
        self.explained, self.task, self.media = explained, explained.task, media
        self.names, self.readable_names = explained.names, readable(explained.names)
        self.test = explained.data.dataset("test")
        self.sources = UnitSources(explained.model, explained.training, explained.explainer, self.names, SMALL, 0.0)
        if explained.method.form in ("units", "tree") and not self.sources.there:
            raise explained.wrong("there are no training images that its units could come from")

    def item(self, index: int) -> tuple[Item, ItemKey]:
        """An item of a test image, and its key."""
        explained, outputs = self.explained, self.explained.outputs
        name = outputs.sample_ids[index]
        (sample,) = samples_of(self.test, [name])
        ids = self._options(index)
        labels = list(ids)
        options: list[Option] = []
        decisions: list[UnitShown] = []
        leaves: list[int] = []
        scores: dict[str, float] = {}
        maps = self._maps(sample, labels) if explained.method.form == "heatmap" else None
        scale = None if maps is None else scale_of(maps)
        for rank, label in enumerate(labels):
            pictures: list[str] = []
            rows: list[UnitShown] = []
            if maps is not None:
                pictures = [self._keep(fit(to_image(heat_map(sample["image"], maps[rank].clamp(min=0), scale)), LARGE))]
            elif explained.method.form == "tree":
                rows, decisions, leaves = self._path(sample, index, scores)
            elif explained.method.form == "units":
                units = explained.rows_of(index, label)
                known = self._rows(sample, index, units, f"class {label}", scores)
                known = [
                    self._with_evidence(row, scores[row.id], unit, label)
                    for row, unit in zip(known, units, strict=True)
                ]
                rows = sorted(known, key=lambda row: row.id)
            label_name = (
                self.readable_names[label] if explained.method.labels and explained.method.form != "tree" else None
            )
            has_evidence = explained.method.evidence and maps is not None
            evidence = {"probability": float(outputs.logits[index].softmax(0)[label])} if has_evidence else {}
            options.append(Option(ids[label], pictures, rows, self._examples(label, name), label_name, evidence))
        options.sort(key=lambda option: option.id)
        photo = self._keep(fit(to_image(sample["image"]), LARGE))
        ends = [self.readable_names[leaf] for leaf in leaves if explained.method.labels]
        item = Item(explained.id("i", name), photo, options, decisions, ends)
        answer = self.task.answer(ids, leaves, outputs.labels[index][0])
        output = ids[labels[0]] if len(ids) > 1 else None
        return item, ItemKey(name, bool(outputs.correct[index]), answer, output, scores)

    def _options(self, index: int) -> dict[int, str]:
        """Ids of the options of a test image by class, the predicted one first."""
        name = self.explained.outputs.sample_ids[index]
        return {label: self.explained.id("o", f"{name} class {label}") for label in self.explained.classes(index)}

    def with_attention(self, item: Item) -> Item:
        """An item that asks for a point of the confidence scale, to see that it is read."""
        points = POINTS[self.task.scale]
        return replace(item, attention=1 + int(self.explained.order(f"attention {item.id}"), 16) % points)

    @property
    def has_rated_rows(self) -> bool:
        """Whether rows can be added whose rating is known: not where they would lack the evidence of the others."""
        method = self.explained.method
        rated = (method.form, method.rating, method.evidence) == ("units", "rows", False)
        return rated and method.similarity != "pairwise"

    def with_catch_rows(self, item: Item, key: ItemKey) -> tuple[Item, ItemKey]:
        """An item with two rows whose right rating is known: a region next to itself, and one next to noise.

        They replace two other rows of an option and are about those: photo and region stay the same.
        """
        number = int(self.explained.order(f"catch {item.id}"), 16) % len(item.options)
        option = item.options[number]
        gone, kept = option.rows[:2], option.rows[2:]  # in the order of their ids, which is not the model's ranking
        regions = [[self._kept(name) for name in row.pictures[:2]] for row in gone]
        (photo, region), (other, elsewhere) = regions[0], regions[-1]
        piece, source = self._noise(item.id, photo.size)
        pictures = ([photo, region, region, photo], [other, elsewhere, piece, source])
        names = [self.explained.id("r", f"catch {kind} {item.id}") for kind in ("same", "noise")]
        rows = [  # every picture in a file of its own: a repeated name would give these rows away
            UnitShown(name, [self._keep(picture, 89 - 4 * row - index) for index, picture in enumerate(some)])
            for row, (name, some) in enumerate(zip(names, pictures, strict=True))
        ]
        options = [*item.options]
        options[number] = replace(option, rows=sorted([*kept, *rows], key=lambda row: row.id))
        top = POINTS["similarity" if self.explained.method.similarity == "scale" else "alike"]
        lower = [str(point) for point in range(1, top // 2 + 1)]
        catch = {f"similarity.{names[0]}": [str(top)], f"similarity.{names[1]}": lower}
        scores = {name: score for name, score in key.scores.items() if name not in {row.id for row in gone}}
        return replace(item, options=options), replace(key, scores=scores, catch=catch)

    def _noise(self, name: str, size: tuple[int, int]) -> tuple[Image.Image, Image.Image]:
        """A piece of noise, and the picture of noise that it is cut from."""
        generator = torch.Generator().manual_seed(int(self.explained.order(f"noise {name}")[:12], 16))
        whole = to_image(torch.rand((3, size[1] // 8, size[0] // 8), generator=generator)).resize(size)
        side = 2 * min(size) // 5
        x, y = (int(torch.randint(pixels - side, (), generator=generator)) for pixels in size)
        box = (x, y, x + side - 1, y + side - 1)
        return fit(crop(whole, box), SMALL), draw_box(whole, box)

    def _maps(self, sample: Any, labels: list[int]) -> Tensor:
        """``(k, H, W)`` evidence for classes, >= 0."""
        targets = Targets(self.explained.kind, torch.tensor([labels]))
        keys = sample["sample_key"].reshape(1)
        maps = self.explained.explainer.attribute(self.explained.model, sample["image"][None], targets, sample_ids=keys)
        return maps[0].detach().nan_to_num().clamp(min=0)

    def _path(
        self, sample: Any, index: int, scores: dict[str, float]
    ) -> tuple[list[UnitShown], list[UnitShown], list[int]]:
        """Nodes with the model's decisions, those that are left to the participant, and the classes these lead to.

        The scores of all are added.
        """
        parts = self.task.split(self.explained.path(index)[0])
        assert parts is not None  # looked at before
        steps, nodes, leaves = parts
        units = [node.unit for node in (*(step.node for step in steps), *nodes) if node.unit is not None]
        rows = [self._with_evidence(row, scores[row.id]) for row in self._rows(sample, index, units, "path", scores)]
        decided: list[UnitShown] = [
            replace(row, decision="present" if step.is_present else "absent")
            for row, step in zip(rows, steps, strict=False)
        ]
        return decided, rows[len(steps) :], leaves

    def _rows(self, sample: Any, index: int, units: list[int], group: str, scores: dict[str, float]) -> list[UnitShown]:
        """One row per unit in their order; their scores are added."""
        keys = sample["sample_key"].reshape(1)
        views = unit_views(
            self.explained.explainer, self.explained.model, sample["image"][None], torch.tensor([units]),
            SMALL, keys, 0.0,  # the region is what the box holds, and nothing around it
        )[0]  # fmt: skip
        sources = self.sources.of(units)
        rows = []
        for unit, view in zip(units, views, strict=True):
            if sources[unit].stale:
                raise self.explained.wrong(
                    f"unit {unit} is not the patch of {sources[unit].sample_id} that it was projected onto: the model "
                    "was trained further after its projection, or the training images are different"
                )
            source = sources[unit].view
            pictures = [self._keep(picture) for picture in (view.photo, view.crop, source.crop, source.photo)]
            name = self.explained.id("r", f"{self.explained.outputs.sample_ids[index]} {group} unit {unit}")
            rows.append(UnitShown(name, pictures))
            scores[rows[-1].id] = float(self.explained.outputs.scores[index, unit])
        return rows

    def _with_evidence(self, row: UnitShown, score: float, unit: int = 0, label: int | None = None) -> UnitShown:
        """A row with what the model sees, where the arm shows it; the score alone in a tree."""
        if not self.explained.method.evidence:
            return row
        evidence = {"score": score}
        if label is not None and self.explained.units.weight is not None:
            weight = float(self.explained.units.weight[label, unit].detach())
            evidence |= {"weight": weight, "contribution": weight * score}
        return replace(row, evidence=evidence)

    def _examples(self, label: int, class_name: str) -> list[str]:
        """Training photos of a class."""
        number = self.explained.method.examples
        if not number:
            return []
        training = self.explained.training.shown("projection")
        own = [name for name, one in zip(training.sample_ids, training.labels.tolist(), strict=True) if one == label]
        if len(own) < number:
            raise self.explained.wrong(f"the class {self.names[label]} has {len(own)} training photos, not {number}")
        chosen = sorted(own, key=lambda name: self.explained.order(f"{class_name} example {name}"))[:number]
        return [self._keep(fit(to_image(sample["image"]), SMALL)) for sample in samples_of(training, chosen)]

    def _kept(self, name: str) -> Image.Image:
        return Image.open(io.BytesIO(self.media[name])).convert("RGB")

    def _keep(self, picture: Image.Image, quality: int = 90) -> str:
        buffer = io.BytesIO()
        picture.save(buffer, "webp", quality=quality)  # pixels and nothing else
        name = media_name(buffer.getvalue(), "webp")
        self.media[name] = buffer.getvalue()
        return name
