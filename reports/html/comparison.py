"""Two models side by side on the same images: what each decides and why, the images first on which they disagree."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reports.explained_model import ExplainedImage, ExplainedModel
from reports.html.contents import spread
from reports.html.evaluation_files import EvaluationFiles
from reports.html.site import Site, key_of
from reports.results.differences import titles
from reports.results.metrics_json import Result
from reports.results.paired_comparison import Comparison, table_of
from reports.scan import Scan, loaders, refuse_another_model, samples_of, scan

LINES, CLASSES, FIRST = 4, 2, 8  # units of a table, tables of an image, images on the first page
CLEAR = 0.05  # corrected p below which a difference is set in bold
# what two models can make of an image, in the order in which they are shown
GROUPS = {
    "A": "Only A is right",
    "B": "Only B is right",
    "different": "Both are wrong, each in its own way",
    "same": "Both are wrong in the same way",
    "right": "Both are right",
}
APART = ("A", "B", "different")  # the models disagree


@dataclass(frozen=True)
class Side:
    """One of the two models.

    Args:
        letter: A or B.
        title: what tells it from the other.
        subject: the model.
        files: what its evaluation found.
        seen: what the model says of the images that are compared, in their order.
        dataset: of its images.
    """

    letter: str
    title: str
    subject: ExplainedModel
    files: EvaluationFiles
    seen: Scan
    dataset: Any

    def predicted(self, row: int) -> str:
        """Name of the predicted class of an image."""
        return self.subject.class_names[self.seen.predicted[row]]


def build_comparison(
    evaluated: Sequence[tuple[ExplainedModel, EvaluationFiles]], compared: Comparison, folder: Path, most: int = 40
) -> Path:
    """Write pages that show two models side by side on the same images.

    Args:
        evaluated: both models, in evaluation mode, with what their evaluations found.
        compared: their paired differences.
        folder: of the pages; an earlier report in it is replaced.
        most: number of images with a page; those on which the models disagree come first.

    Returns:
        The first page.

    Raises:
        FileExistsError: if the folder holds other files.
        ValueError: if a table does not add up to what a model says, or a model is not the one that was evaluated.
    """
    site = Site(folder)
    named = zip("AB", titles(compared.results), evaluated, strict=True)
    sides = [_side(letter, title, *model, compared.shared) for letter, title, model in named]
    groups = [_group(sides, row) for row in range(len(compared.shared))]
    chosen = [
        row for name in GROUPS for row in spread([r for r, g in enumerate(groups) if g == name], sides[0].seen, most)
    ]
    cards = _images(site, sides, chosen[:most], groups)
    counts = Counter(groups)
    site.page(
        "index.html",
        "comparison",
        sides=sides,
        counts=[(text, counts[name]) for name, text in GROUPS.items()],
        total=len(groups),
        cards=[card for card in cards if card["group"] in APART][:FIRST],
        differing=compared.differing,
    )
    grouped = [(text, [card for card in cards if card["group"] == name]) for name, text in GROUPS.items()]
    site.page("images.html", "compared_images", groups=grouped, sides=sides, shown=len(cards), total=len(groups))
    header, lines = table_of(compared.rows, compared.results[0])
    clear = [row.corrected < CLEAR for row in compared.rows]
    marked = list(zip(lines, clear, strict=True))
    site.page("differences.html", "differences", header=header, lines=marked, sides=sides, notes=compared.notes)
    versions = {name: version(name) for name in ("torch", "torchvision", "pillow", "jinja2")}
    explainers = [side.subject.explained_by for side in sides]
    site.finish({"versions": versions, "images": most, "explainers": explainers})
    return folder / "index.html"


def comparison_folder(first: Result, second: Result) -> Path:
    """Where pages of a comparison go: in ``compared`` of the first run, a folder for each pair of evaluations.

    Args:
        first: one evaluation.
        second: the other.
    """
    away = os.path.relpath(second.path.resolve(), first.path.resolve().parent)
    return first.run / "compared" / f"{second.run.resolve().name}-{key_of(Path(away).as_posix())[:6]}"


def _side(letter: str, title: str, subject: ExplainedModel, files: EvaluationFiles, sample_ids: Sequence[str]) -> Side:
    split, limit = files.result["split"], files.result["limit"]
    seen = scan(subject.model, subject.datamodule, split, limit)
    refuse_another_model(seen, files.result)
    with loaders(subject.datamodule, split, limit) as loader:
        dataset = loader.dataset
    return Side(letter, title, subject, files, seen.of(sample_ids), dataset)


def _group(sides: Sequence[Side], row: int) -> str:
    """What the models make of an image: a key of ``GROUPS``."""
    first, second = (side.seen.correct[row] for side in sides)
    if first != second:
        return "A" if first else "B"
    if first:
        return "right"
    return "same" if len({side.predicted(row) for side in sides}) == 1 else "different"


def _choose(seen: Scan, groups: Sequence[str], most: int) -> list[int]:
    """Positions of the images to show: the kinds of disagreement in turn, then what both get wrong, then the rest."""
    found = {name: spread([row for row, group in enumerate(groups) if group == name], seen, most) for name in GROUPS}
    apart = [found.pop(name) for name in APART]
    turns = sorted((turn, kind, row) for kind, rows in enumerate(apart) for turn, row in enumerate(rows))
    return ([row for _, _, row in turns] + [row for rows in found.values() for row in rows])[:most]


def _images(site: Site, sides: Sequence[Side], rows: Sequence[int], groups: Sequence[str]) -> list[dict[str, Any]]:
    """A page for each image with both explanations, and what a list of them shows."""
    site.navigation = [
        ("index.html", "Overview"),
        ("images.html", "Images"),
        ("differences.html", "Differences"),
    ]
    site.title = " and ".join(f"{side.letter}: {side.title}" for side in sides)
    ids = [sides[0].seen.sample_ids[row] for row in rows]
    explained = [
        side.subject.explain(samples_of(side.dataset, ids), "the page", classes=CLASSES, most=LINES) for side in sides
    ]
    cards = []
    for row, *images in zip(rows, *explained, strict=True):
        link = f"image-{key_of(images[0].sample_id)}.html"
        pair = list(zip(sides, images, strict=True))
        site.page(link, "compared_image", pair=pair, says=GROUPS[groups[row]])
        cards.append(_card(pair, link) | {"group": groups[row]})
    return cards


def _card(pair: Sequence[tuple[Side, ExplainedImage]], link: str) -> dict[str, Any]:
    first = pair[0][1]
    said = [
        (side.letter, "nothing" if image.abstains else side.subject.class_names[image.predicted], image.correct)
        for side, image in pair
    ]
    return {
        "picture": first.photo,
        "sample_id": first.sample_id,
        "link": link,
        "truth": ", ".join(first.truth),
        "said": said,
    }
