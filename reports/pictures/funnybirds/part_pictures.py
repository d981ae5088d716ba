"""Pictures of the FunnyBirds protocol: where explanations look, and which parts they call important."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from datamodules.sample import ClassTables
from explanations import BoxMaps, Explainer, SummedMaps
from explanations.heat import heat_map, scale_of
from explanations.views import BLACK, BOX_COLOUR, GAP, WHITE, fit, sheet, to_image
from lightning_modules.contract import InterpretableModel
from metrics.functional import part_thresholds
from reports.pictures.funnybirds.parts import Bird, Explained, read_birds
from reports.pictures.funnybirds.spider import spider_plot

TITLES = {"ssm": "summed similarity maps", "bb": "bounding boxes"}
IMAGES = 4
THRESHOLDS = (0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)  # the nearest of the 80 are shown
SIDE, LINE, TEXT = 192, 16, 12  # pixels of a map, a line and its letters
NAME, CELL, NUMBER = 60, 34, 60  # pixels of the name of a line, of a cell of a part, and of the number after them
POSITIVE, NEGATIVE, FILLED, EMPTY = "#d95f02", "#2155bd", "#404040", "#c0c0c0"


def funnybirds_pictures(  # noqa: PLR0913 - what an evaluation hands over
    metrics: Mapping[str, Mapping[str, Any]],
    explainer: Explainer,
    model: InterpretableModel,
    dataset: Any,
    tables: ClassTables,
    class_names: Sequence[str],
    device: torch.device,
) -> dict[str, Image.Image]:
    """The pictures of an evaluation by the FunnyBirds protocol.

    Args:
        metrics: of the evaluation, by key.
        explainer: of classes, that was evaluated.
        model: in evaluation mode.
        dataset: the evaluated images.
        tables: of the data.
        class_names: K names.
        device: of the model.

    Returns:
        ``spider`` if all of its metrics were computed, and, if parts were, those of :func:`part_pictures` with summed
        maps, boxes and what was evaluated side by side.
    """
    explainers: dict[str, Explainer] = {"ssm": SummedMaps(), "bb": BoxMaps(), explainer.key: explainer}
    evaluated, pictures = TITLES.get(explainer.key, explainer.key), {}
    if spider := spider_plot(metrics, f"{type(model).__name__}, {evaluated}"):
        pictures["spider"] = spider
    if "funnybirds/sd" in metrics:
        shown = {TITLES.get(key, key): found for key, found in explainers.items()}
        chosen = float(metrics.get("funnybirds/completeness", {}).get("threshold", math.nan))
        codes = tables.label_map_codes
        pictures |= part_pictures(model, dataset, codes, shown, class_names, device, {evaluated: chosen})
    return pictures


def part_pictures(  # noqa: PLR0913 - what an evaluation hands over
    model: InterpretableModel,
    dataset: Any,
    codes: Mapping[str, Sequence[int]],
    explainers: Mapping[str, Explainer],
    class_names: Sequence[str],
    device: torch.device,
    chosen: Mapping[str, float],
) -> dict[str, Image.Image]:
    """Two pictures of the same four images, a column for each explainer.

    Args:
        model: in evaluation mode.
        dataset: with the interface ``InterventionDataset``.
        codes: part -> its codes in label maps.
        explainers: title -> explainer of classes that supports the model.
        class_names: K names.
        device: of the model.
        chosen: title -> the threshold at which completeness is reported; NaN if it is not or is undefined.

    Returns:
        ``part_importance``, maps with the importance of each part under them, beside what the logit loses without it;
        ``important_parts``, P_t for several t beside the minimal sufficient sets, as figure 4 of Opłatek et al. (2024).
    """
    birds = read_birds(model, dataset, codes, explainers, device, min(IMAGES, len(dataset)))
    titles, parts = [_title(bird, class_names) for bird in birds], list(dataset.parts)
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
    return {
        "part_importance": sheet(importance, columns, titles),
        "important_parts": sheet(important, columns, titles),
    }


def _title(bird: Bird, class_names: Sequence[str]) -> str:
    wrong = "" if bird.label == bird.prediction else f", predicted as {class_names[bird.prediction]}"
    return f"{bird.name}: {class_names[bird.label]}{wrong}"


# -- maps and importance -------------------------------------------------------------------------------------------
def _drops(bird: Bird, parts: Sequence[str]) -> Image.Image:
    tile = _tile(parts)
    _write(tile, "image", 0)
    tile.paste(fit(to_image(bird.image), SIDE), (0, LINE))
    _write(tile, "without a part, the logit falls by", SIDE + 3 * LINE)
    _bars(tile, bird.drops, parts, SIDE + 4 * LINE)
    return tile


def _tile(parts: Sequence[str]) -> Image.Image:
    return Image.new("RGB", (SIDE + NUMBER, SIDE + (5 + len(parts)) * LINE), WHITE)


def _importance(bird: Bird, title: str, explained: Explained, parts: Sequence[str]) -> Image.Image:
    tile = _tile(parts)
    _write(tile, title, 0)
    scale = scale_of(explained.map)
    tile.paste(fit(to_image(heat_map(bird.image, explained.map, scale)), SIDE), (0, LINE))
    _legend(tile, scale, SIDE + LINE + GAP)
    score = explained.single_deletion
    _write(tile, f"part importance (SD {'undefined' if score != score else f'{score:.2f}'})", SIDE + 3 * LINE)
    _bars(tile, explained.importance, parts, SIDE + 4 * LINE)
    return tile


def _legend(tile: Image.Image, scale: tuple[float, float], top: int) -> None:
    """The colours of a heat map from the lowest to the highest value, with numbers."""
    ramp = torch.linspace(*scale, SIDE).expand(LINE // 2, SIDE)
    tile.paste(to_image(heat_map(torch.ones(3, *ramp.shape), ramp, scale)), (0, top))
    draw, font = ImageDraw.Draw(tile), ImageFont.load_default(TEXT)
    for x, value, anchor in ((0, scale[0], "la"), (SIDE / 2, sum(scale) / 2, "ma"), (SIDE, scale[1], "ra")):
        draw.text((x, top + LINE // 2), f"{value:.3g}", fill=BLACK, font=font, anchor=anchor)


def _bars(tile: Image.Image, values: Tensor, parts: Sequence[str], top: int) -> None:
    """A line for each part: name, bar from zero to its value, value."""
    draw, font, span = ImageDraw.Draw(tile), ImageFont.load_default(TEXT), SIDE - NAME
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    scale = span / max(high - low, 1e-12)
    zero = NAME - low * scale
    for row, (name, value) in enumerate(zip(parts, values.tolist(), strict=True)):
        y = top + row * LINE
        draw.text((0, y), name, fill=BLACK, font=font)
        colour = POSITIVE if value > 0 else NEGATIVE
        ends = sorted((zero, zero + value * scale))
        draw.rectangle((ends[0], y + 3, ends[1], y + LINE - 4), fill=colour)
        text = f"{value:+.0f}" if abs(value) >= 100 else f"{value:+.3g}"
        draw.text((SIDE + 2 * GAP, y), text, fill=BLACK, font=font)
    draw.line((zero, top, zero, top + len(parts) * LINE - 2), fill=BLACK)


# -- important parts -----------------------------------------------------------------------------------------------
def _sets(bird: Bird, parts: Sequence[str]) -> Image.Image:
    rows = [("sufficient", "", chosen) for chosen in bird.sets.tolist()]
    return _matrix("sets of parts that no other class has", "", parts, rows)


def _important(title: str, explained: Explained, parts: Sequence[str], chosen: float) -> Image.Image:
    thresholds = part_thresholds()
    shown = {int((thresholds - t).abs().argmin()) for t in THRESHOLDS}
    at = None if math.isnan(chosen) else int((thresholds - chosen).abs().argmin())
    indices = sorted(shown | ({at} if at is not None else set()))
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
    draw, font = ImageDraw.Draw(tile), ImageFont.load_default(TEXT)
    _write(tile, title, 0)
    for column, name in enumerate(parts):
        draw.text((NAME + (column + 0.5) * CELL, LINE), name, fill=BLACK, font=font, anchor="ma")
    draw.text((end, LINE), last, fill=BLACK, font=font)
    for row, (name, text, inside) in enumerate(rows, start=2):
        y = row * LINE
        draw.text((GAP, y + 1), name, fill=BLACK, font=font)
        for column, filled in enumerate(inside):
            x = NAME + column * CELL
            box = (x + 2, y + 4, x + CELL - 3, y + LINE - 3)
            draw.rectangle(box, outline=FILLED if filled else EMPTY, fill=FILLED if filled else WHITE)
        draw.text((end, y + 1), text, fill=BLACK, font=font)
    return tile


def _write(tile: Image.Image, text: str, top: int) -> None:
    ImageDraw.Draw(tile).text((0, top), text, fill=BLACK, font=ImageFont.load_default(TEXT))
