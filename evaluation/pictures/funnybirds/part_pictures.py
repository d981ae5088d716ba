"""A picture of the FunnyBirds protocol: where explanations look, and how important they call each part."""

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
from protometry.explanations.views import AGAINST, BLACK, FOR, GAP, WHITE, fit, sheet, to_image
from protometry.run_folder.text_in_pictures import write_text

IMAGES = 4
SIDE, LINE, TEXT = 192, 16, 12  # pixels of a map, a line and its letters
NAME, NUMBER = 60, 60  # pixels of the name of a line, and of the number after it


def part_picture(explained: ExplainedModel, dataset: Any, explainers: Mapping[str, Explainer]) -> Image.Image:
    """Maps of four images with the importance of each part under them, next to what the logit loses without it.

    Args:
        explained: the model and its data.
        dataset: with the interface ``InterventionDataset``.
        explainers: title -> explainer of classes that supports the model, a column for each.
    """
    codes = explained.datamodule.tables.label_map_codes
    birds = read_birds(explained.model, dataset, codes, explainers, min(IMAGES, len(dataset)))
    parts = list(dataset.parts)
    rows = [
        [_drops(bird, parts), *(_importance(bird, title, e, parts) for title, e in bird.explained.items())]
        for bird in birds
    ]
    return sheet(rows, 1 + len(explainers), [_title(bird, explained.class_names) for bird in birds])


def _title(bird: Bird, class_names: Sequence[str]) -> str:
    wrong = "" if bird.label == bird.prediction else f", predicted as {class_names[bird.prediction]}"
    return f"{bird.name}: {class_names[bird.label]}{wrong}"


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


def _legend(tile: Image.Image, scale: float, top: int) -> None:
    """The colours of a heat map from the lowest to the highest value, with numbers."""
    ramp = torch.linspace(-scale, scale, SIDE).expand(LINE // 2, SIDE)
    tile.paste(to_image(heat_map(torch.ones(3, *ramp.shape), ramp, scale)), (0, top))
    for x, value, anchor in ((0, -scale, "la"), (SIDE / 2, 0.0, "ma"), (SIDE, scale, "ra")):
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
