"""Pages that compare two models on the same images: what each decides and why, first where they disagree."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protometry.evaluation.explained.explained_model import ExplainedImage, ExplainedModel
from protometry.evaluation.explained.scan import Scan, samples_of, scan_evaluated
from protometry.evaluation.limits import Limits
from protometry.evaluation.pages.contents import image_link, spread
from protometry.evaluation.pages.evaluation_files import EvaluationFiles
from protometry.evaluation.pages.site import Site, key_of
from protometry.evaluation.results.metrics_json import Result
from protometry.evaluation.tables.groups import titles
from protometry.evaluation.tables.paired_comparison import Comparison, table_of
from protometry.run_folder.lock import only_process

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
        title: what distinguishes it from the other.
        source: the evaluation that was read.
        outputs: what the model says of the images that are compared, in their order.
    """

    letter: str
    title: str
    source: str
    explained: ExplainedModel
    files: EvaluationFiles
    outputs: Scan
    dataset: Any

    def predicted(self, row: int) -> str:
        """Names of the predicted classes of an image."""
        return self.explained.named(self.outputs.predictions[row])


def build_comparison(
    evaluated: Sequence[tuple[ExplainedModel, EvaluationFiles]],
    compared: Comparison,
    folder: Path,
    limits: Limits = Limits(),
) -> Path:
    """Write pages that show two models side by side on the same images.

    Args:
        evaluated: both models, in evaluation mode, with what their evaluations found.
        compared: their paired differences.
        folder: of the pages; an earlier report in it is replaced.
        limits: of the images with a page; those on which the models disagree come first.

    Raises:
        FileExistsError: if the folder holds other files.
        ValueError: if a table does not add up to what a model says, a model is not the one that was evaluated, or
            another process writes there.
    """
    with only_process(folder):
        _write(Site(folder), evaluated, compared, limits.images)
    return folder / "index.html"


def _write(
    site: Site, evaluated: Sequence[tuple[ExplainedModel, EvaluationFiles]], compared: Comparison, most: int
) -> None:
    sources = [result.source for result in compared.results]
    named = zip("AB", titles(compared.results), sources, evaluated, strict=True)
    sides = [_side(letter, title, source, model, compared.shared) for letter, title, source, model in named]
    groups = [_group(sides, row) for row in range(len(compared.shared))]
    chosen = [
        row for name in GROUPS for row in spread([r for r, g in enumerate(groups) if g == name], sides[0].outputs, most)
    ]
    site.shared = {
        "report": " and ".join(f"{side.letter}: {side.title}" for side in sides),
        "navigation": [("index.html", "Overview"), ("images.html", "Images"), ("differences.html", "Differences")],
        "sides": sides,
    }
    cards = _images(site, sides, chosen[:most], groups)
    counts = Counter(groups)
    site.page(
        "index.html",
        "comparison",
        counts=[(text, counts[name]) for name, text in GROUPS.items()],
        total=len(groups),
        cards=[card for card in cards if card["group"] in APART][:FIRST],
        differing=compared.differing,
    )
    grouped = [(text, [card for card in cards if card["group"] == name]) for name, text in GROUPS.items()]
    site.page("images.html", "compared_images", groups=grouped, shown=len(cards), total=len(groups))
    header, lines = table_of(compared.rows, compared.results[0])
    clear = [row.corrected < CLEAR for row in compared.rows]
    marked = list(zip(lines, clear, strict=True))
    site.page("differences.html", "differences", header=header, lines=marked, notes=compared.notes)
    site.finish({"images": most, "explainers": [side.explained.explained_by for side in sides]})


def comparison_folder(first: Result, second: Result) -> Path:
    """Where pages of a comparison go: in ``compared`` of the first run, a folder for each pair of evaluations."""
    away = os.path.relpath(second.path.resolve(), first.path.resolve().parent)
    return first.run / "compared" / f"{second.run.resolve().name}-{key_of(Path(away).as_posix())[:6]}"


def _side(
    letter: str, title: str, source: str, model: tuple[ExplainedModel, EvaluationFiles], sample_ids: Sequence[str]
) -> Side:
    explained, files = model
    outputs, dataset = scan_evaluated(explained.model, explained.datamodule, files.result)
    return Side(letter, title, source, explained, files, outputs.of(sample_ids), dataset)


def _group(sides: Sequence[Side], row: int) -> str:
    """What the models make of an image: a key of ``GROUPS``."""
    first, second = (side.outputs.correct[row] for side in sides)
    if first != second:
        return "A" if first else "B"
    if first:
        return "right"
    return "same" if len({side.predicted(row) for side in sides}) == 1 else "different"


def _images(site: Site, sides: Sequence[Side], rows: Sequence[int], groups: Sequence[str]) -> list[dict[str, Any]]:
    """A page for each image with both explanations, and what a list of them shows."""
    ids = [sides[0].outputs.sample_ids[row] for row in rows]
    explained = [
        side.explained.explain(samples_of(side.dataset, ids), "the page", classes=CLASSES, most=LINES) for side in sides
    ]
    cards = []
    for row, *images in zip(rows, *explained, strict=True):
        link = image_link(images[0].sample_id)
        pair = list(zip(sides, images, strict=True))
        site.page(link, "compared_image", pair=pair, says=GROUPS[groups[row]])
        cards.append(_card(pair, link) | {"group": groups[row]})
    return cards


def _card(pair: Sequence[tuple[Side, ExplainedImage]], link: str) -> dict[str, Any]:
    first = pair[0][1]
    said = [(side.letter, image.predicted, image.correct) for side, image in pair]
    return {
        "picture": first.whole,
        "sample_id": first.sample_id,
        "link": link,
        "truth": ", ".join(first.truth),
        "said": said,
    }
