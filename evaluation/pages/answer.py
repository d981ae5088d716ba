"""What a model says of one photo, and why: as numbers, as a page and as a picture."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from html import escape
from itertools import count
from pathlib import Path
from typing import Any

from PIL import Image

from protometry.evaluation.explained.additive import AdditiveTable, TreePath
from protometry.evaluation.explained.explained_figure import explained_figure
from protometry.evaluation.explained.explained_model import ExplainedImage, ExplainedModel, UnitRow
from protometry.evaluation.explained.unit_sources import Source
from protometry.evaluation.pages.site import data_uri, key_of
from protometry.evaluation.pages.standalone_page import standalone_page
from protometry.explanations.views import Box, png
from protometry.run_folder.atomic import write_atomic


@dataclass(frozen=True)
class Part:
    """What one unit adds to the decision, or several at one place of the photo.

    Args:
        name: what the unit is called.
        same: names of the others at the same place.
        box: what it saw of the photo, inclusive pixels (x0, y0, x1, y1) of the photo as given, upright; None for a flat
            map, for a unit that a tree finds absent, and in the margin that a letterbox adds.
        score: what the head reads.
        contribution: of all at the place; of a node of a tree, the probability of its branch.
        flags: what to know of it.
        source: the photo that stands for the unit; None for cells and classes.
    """

    name: str
    same: tuple[str, ...]
    box: Box | None
    score: float
    contribution: float
    flags: tuple[str, ...]
    source: Source | None = field(repr=False)

    def json(self) -> dict[str, Any]:
        """As plain data; the crop of the source is a data URI that an HTML page can show."""
        plain = {name: value for name, value in vars(self).items() if name != "source"}
        if self.source is None:
            return plain | {"source": None}
        facts = {name: value for name, value in vars(self.source).items() if name != "view"}
        return plain | {"source": {**facts, "crop": data_uri(self.source.view.crop)}}


class Answer:
    """What a model says of one photo, and why; as the last line of a cell, a notebook shows its page.

    The contributions of all ``units``, ``rest``, ``bias`` and ``residual`` add up to ``margin``. Of a tree,
    contributions and ``rest`` multiply to ``tree.reach``, and ``reach * leaf + elsewhere`` is the probability.

    Attributes:
        photo: name of the file, or "photo".
        size: width and height of the photo in pixels, as boxes have them.
        prediction: name of the class; None if the model abstains, for multilabel data a list of names.
        explained: name of the class that is explained, the one with the largest logit.
        probability: of that class.
        margin: its logit above ``against``.
        cautions: what to know before the explanation is read.
    """

    def __init__(self, image: ExplainedImage, model: ExplainedModel) -> None:
        self._image, self._model = image, model
        self._table: AdditiveTable = image.tables[0][0]
        self.photo, self.size, self.cautions = image.sample_id, image.photo_size, image.cautions
        predicted = [model.class_names[label] for label in image.predictions]
        single = predicted[0] if predicted else None
        self.prediction: str | list[str] | None = single if model.threshold is None else predicted
        self.explained, self.probability = model.class_names[image.label], self._table.probability
        self.margin, self.against = self._table.margin.value, self._table.against
        self.rest = self._table.rest.value
        self.bias = None if self._table.bias is None else self._table.bias.value
        self.residual = None if self._table.residual is None else self._table.residual.value
        self.tree: TreePath | None = self._table.tree_path

    @cached_property
    def units(self) -> list[Part]:
        """The largest contributions, one for each place of the photo; of a tree, the nodes on the path."""
        return [self._part(row) for row in self._image.tables[0][1]]

    def _part(self, row: UnitRow) -> Part:
        line, amount = row.line, row.line.contribution if row.line.is_node else row.line.total
        box = None if row.view.box is None or line.is_absent else self._image.on_photo(row.view.box)
        return Part(row.title, row.same, box, line.score, amount.value, row.flags, row.source)

    def json(self) -> dict[str, Any]:
        """As plain data, for :func:`json.dumps`."""
        names = ("photo", "size", "prediction", "explained", "probability", "margin", "against")
        sums = ("rest", "bias", "residual")
        return {
            **{name: getattr(self, name) for name in names},
            "units": [unit.json() for unit in self.units],
            **{name: getattr(self, name) for name in sums},
            "tree": None if self.tree is None else asdict(self.tree),
            "cautions": self.cautions,
            "explainer": self._model.explained_by,
        }

    def page(self) -> str:
        """The text of an HTML page that holds its pictures."""
        return standalone_page(self._image, self._model)

    def _repr_html_(self) -> str:
        """The page in a frame, which keeps its style from the notebook that shows it."""
        grown = "this.style.height = `${this.contentDocument.documentElement.scrollHeight}px`"
        return (
            f'<iframe title="Explanation" srcdoc="{escape(self.page())}" onload="{grown}" '
            'style="width: 100%; height: 45rem; border: 0"></iframe>'
        )

    def picture(self) -> Image.Image:
        """The same as one picture."""
        return explained_figure(self._image, self._model)


def write_explained(explained: ExplainedModel, samples: Sequence[Mapping[str, Any]], folder: Path) -> list[str]:
    """Explain images, each by a picture, a page and a JSON file named after it, and numbered where some are there.

    Returns:
        A line for each image: what the model sees in it, and where the files lie.

    Raises:
        ValueError: if the contributions do not sum to the logit.
    """
    lines = []
    for image in explained.explain(samples, "the page"):
        answer = Answer(image, explained)
        name = re.sub(r"[^\w=-]+", "-", image.sample_id)[:100].strip("-") or key_of(image.sample_id)
        numbered = (name if number == 1 else f"{name}-{number}" for number in count(1))
        name = next(each for each in numbered if not any(folder.glob(f"{each}.*")))
        write_atomic(folder / f"{name}.png", png(answer.picture()))
        write_atomic(folder / f"{name}.html", answer.page())
        write_atomic(folder / f"{name}.json", json.dumps(answer.json(), indent=1, ensure_ascii=False) + "\n")
        said = "the model abstains" if image.abstains else image.answer
        lines.append(f"{image.sample_id}: {said}, see {folder / name}.html, .png and .json")
        lines += [f"  {caution}" for caution in answer.cautions]
    return lines
