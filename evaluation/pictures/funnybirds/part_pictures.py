"""Pictures of the FunnyBirds protocol: where explanations look, and which parts they call important."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from protometry.evaluation.explained.explained_model import ExplainedModel
from protometry.evaluation.pictures.funnybirds.parts import Bird, Explained, read_birds
from protometry.explanations import Explainer
from protometry.explanations.heat import heat_map, scale_of
from protometry.explanations.views import AGAINST, BLACK, BOX_COLOUR, FOR, GAP, WHITE, fit, sheet, to_image, write_text
from protometry.metrics.functional import part_thresholds

IMAGES = 4
THRESHOLDS = (0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)  # the nearest of the 80 are shown
SIDE, LINE, TEXT = 192, 16, 12  # pixels of a map, a line and its letters
NAME, CELL, NUMBER = 60, 34, 60  # pixels of the name of a line, of a cell of a part, and of the number after them
FILLED, EMPTY = "#404040", "#c0c0c0"


def part_pictures(
    explained: ExplainedModel, dataset: Any, explainers: Mapping[str, Explainer], chosen: Mapping[str, float]
) -> dict[str, Image.Image]:
    """Two pictures of the same four images, a column for each explainer.

    Args:
        explained: the model and its data.
        dataset: with the interface ``InterventionDataset``.
        explainers: title -> explainer of classes that supports the model.
        chosen: title -> the threshold at which completeness is reported; NaN if it is not or is undefined.

    Returns:
        ``part_importance``, maps with the importance of each part under them, next to what the logit loses without it;
        ``important_parts``, P_t for several t next to the minimal sufficient sets, as figure 4 of Opłatek et al.
        (2024).
    """
    codes = explained.datamodule.tables.label_map_codes
    birds = read_birds(explained.model, dataset, codes, explainers, min(IMAGES, len(dataset)))
    titles, parts = [_title(bird, explained.class_names) for bird in birds], list(dataset.parts)
    importance = [
        [_drops(bird, parts), *(_importance(bird, title, e, parts) for title, e in bird.explained.items())]
        for bird in birds
    ]
    important = [
        [
            _sets(bird, parts),
            *(_important(title, e, parts, chosen.get(title, math.nan)) for title, e in bird.explained.items()),
        ]
        for bird in birds
    ]
    columns = 1 + len(explainers)
    return {"part_importance": sheet(importance, columns, titles), "important_parts": sheet(important, columns, titles)}


def _title(bird: Bird, class_names: Sequence[str]) -> str:
    wrong = "" if bird.label == bird.prediction else f", predicted as {class_names[bird.prediction]}"
    return f"{bird.name}: {class_names[bird.label]}{wrong}"


# -- maps and importance -------------------------------------------------------------------------------------------
def _drops(bird: Bird, parts: Sequence[str]) -> Image.Image:
    tile = _tile(parts)
    write_text(tile, (0, 0), "image", TEXT)
    tile.paste(fit(to_image(bird.image), SIDE), (0, LINE))
    write_text(tile, (0, SIDE + 3 * LINE), "without a part, the logit falls by", TEXT)
    _bars(tile, bird.drops, parts, SIDE + 4 * LINE)
    return tile


def _tile(parts: Sequence[str]) -> Image.Image:
    return Image.new("RGB", (SIDE + NUMBER, SIDE + (5 + len(parts)) * LINE), WHITE)


def _importance(bird: Bird, title: str, explained: Explained, parts: Sequence[str]) -> Image.Image:
    tile = _tile(parts)
    write_text(tile, (0, 0), title, TEXT)
    scale = scale_of(explained.map)
    tile.paste(fit(to_image(heat_map(bird.image, explained.map, scale)), SIDE), (0, LINE))
    _legend(tile, scale, SIDE + LINE + GAP)
    score = "undefined" if math.isnan(explained.single_deletion) else f"{explained.single_deletion:.2f}"
    write_text(tile, (0, SIDE + 3 * LINE), f"part importance (SD {score})", TEXT)
    _bars(tile, explained.importance, parts, SIDE + 4 * LINE)
    return tile


def _legend(tile: Image.Image, scale: tuple[float, float], top: int) -> None:
    """The colours of a heat map from the lowest to the highest value, with numbers."""
    ramp = torch.linspace(*scale, SIDE).expand(LINE // 2, SIDE)
    tile.paste(to_image(heat_map(torch.ones(3, *ramp.shape), ramp, scale)), (0, top))
    for x, value, anchor in ((0, scale[0], "la"), (SIDE / 2, sum(scale) / 2, "ma"), (SIDE, scale[1], "ra")):
        write_text(tile, (x, top + LINE // 2), f"{value:.3g}", TEXT, anchor=anchor)


def _bars(tile: Image.Image, values: Tensor, parts: Sequence[str], top: int) -> None:
    """A line for each part: name, bar from zero to its value, value."""
    draw, span = ImageDraw.Draw(tile), SIDE - NAME
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    scale = span / max(high - low, 1e-12)
    zero = NAME - low * scale
    for row, (name, value) in enumerate(zip(parts, values.tolist(), strict=True)):
        y = top + row * LINE
        write_text(tile, (0, y), name, TEXT)
        colour = FOR if value > 0 else AGAINST
        ends = sorted((zero, zero + value * scale))
        draw.rectangle((ends[0], y + 3, ends[1], y + LINE - 4), fill=colour)
        text = f"{value:+.0f}" if abs(value) >= 100 else f"{value:+.3g}"
        write_text(tile, (SIDE + 2 * GAP, y), text, TEXT)
    draw.line((zero, top, zero, top + len(parts) * LINE - 2), fill=BLACK)


# -- important parts -----------------------------------------------------------------------------------------------
def _sets(bird: Bird, parts: Sequence[str]) -> Image.Image:
    rows = [("sufficient", "", chosen) for chosen in bird.sets.tolist()]
    return _matrix("sets of parts that no other class has", "", parts, rows)


def _important(title: str, explained: Explained, parts: Sequence[str], chosen: float) -> Image.Image:
    thresholds = part_thresholds()
    fixed = {int((thresholds - t).abs().argmin()) for t in THRESHOLDS}
    at = None if math.isnan(chosen) else int((thresholds - chosen).abs().argmin())
    indices = sorted(fixed | ({at} if at is not None else set()))
    csdc = explained.csdc.tolist()
    rows = [
        (f"t = {thresholds[index]:.3f}", f"{csdc[index]:.2f}", explained.important[index].tolist()) for index in indices
    ]
    tile = _matrix(title + ("" if at is None else ", chosen t in a frame"), "CSDC", parts, rows)
    if at is not None:
        top = (2 + indices.index(at)) * LINE
        ImageDraw.Draw(tile).rectangle((0, top, tile.width - 1, top + LINE), outline=BOX_COLOUR, width=2)
    return tile


def _matrix(
    title: str, last: str, parts: Sequence[str], rows: Sequence[tuple[str, str, Sequence[bool]]]
) -> Image.Image:
    """A line for each row: name, a cell for each part that is filled if it is in the set, text."""
    end = NAME + len(parts) * CELL + GAP
    tile = Image.new("RGB", (end + NUMBER, (len(rows) + 3) * LINE), WHITE)
    draw = ImageDraw.Draw(tile)
    write_text(tile, (0, 0), title, TEXT)
    for column, name in enumerate(parts):
        write_text(tile, (NAME + (column + 0.5) * CELL, LINE), name, TEXT, anchor="ma")
    write_text(tile, (end, LINE), last, TEXT)
    for row, (name, text, inside) in enumerate(rows, start=2):
        y = row * LINE
        write_text(tile, (GAP, y + 1), name, TEXT)
        for column, filled in enumerate(inside):
            x = NAME + column * CELL
            box = (x + 2, y + 4, x + CELL - 3, y + LINE - 3)
            draw.rectangle(box, outline=FILLED if filled else EMPTY, fill=FILLED if filled else WHITE)
        write_text(tile, (end, y + 1), text, TEXT)
    return tile
