"""Pictures of concepts: how well weights and scores fit the classes, and what decided on some images, and where."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from matplotlib.figure import Figure
from PIL import Image, ImageDraw
from torch import Tensor

from protometry.datamodules.sample import ClassTables
from protometry.evaluation.pictures.family import Evaluated, PictureFamily
from protometry.explanations.charts import BLUE, ORANGE, chart, styled, to_picture
from protometry.explanations.heat import heat_map
from protometry.explanations.views import BLACK, WHITE, sheet, to_image
from protometry.lightning_modules.contract import InterpretableModel
from protometry.metrics.concepts.maps import region_size
from protometry.metrics.concepts.ranked_concepts import most_important
from protometry.metrics.functional import concept_importance
from protometry.metrics.primitives.truth import truth_of
from protometry.metrics.primitives.upsample import upsample_maps
from protometry.run_folder.text_in_pictures import write_text

PRESENT, ABSENT = "#1a7f37", "#cf222e"
IMAGES = 6  # shown in panels
SHOWN, TILE, TEXT, LINE = 5, 144, 12, 16
WIDTH, HEIGHT = 400, 180  # of a histogram


@dataclass(frozen=True)
class NamedUnits:
    """The units of a model that stand for a concept.

    Args:
        ids: ``(M,)`` int64.
        concepts: ``(M,)`` int64, the concept of each.
        weight: ``(K, U)`` float, of all units.
    """

    ids: Tensor
    concepts: Tensor
    weight: Tensor


def concept_pictures(evaluated: Evaluated) -> dict[str, Image.Image]:
    """How well concepts fit the classes, and what decided on six images, from all over the split."""
    pictures, explained, dataset = {}, evaluated.explained, evaluated.dataset
    units, tables = explained.units, explained.datamodule.tables
    if histograms := importance_histograms(evaluated.items):
        pictures["concept_importance"] = to_picture(histograms)
    if evaluated.named is not None and units.weight is not None and len(evaluated.named[0]):
        ids, concepts = (each.to(units.active.device) for each in evaluated.named)
        named = NamedUnits(ids, concepts, units.weight.detach())
        # one further each time, as classes may alternate
        chosen = sorted({(index * len(dataset) // IMAGES + index) % len(dataset) for index in range(IMAGES)})
        samples = [dataset[index] for index in chosen]
        pictures["concept_panels"] = concept_panels(explained.model, samples, named, tables, explained.class_names)
    return pictures


@styled
def importance_histograms(items: Mapping[str, Mapping[str, Sequence[float]]]) -> Figure | None:
    """Histograms of CGIM over classes and over concepts or units, as figure 2 of Aysel et al. (2025).

    Args:
        items: classes, concepts or units -> key -> value of each, NaN where undefined.

    Returns:
        A row per CGIM and a column per kind, the mean of the values marked; None without values.
    """
    columns = [
        [(key, values) for key, values in items[name].items() if key.startswith("concepts/cgim")]
        for name in ("classes", "concepts", "units")
        if name in items
    ]
    columns = [column for column in columns if column]
    if not columns:
        return None
    rows = list(zip(*columns, strict=False))
    figure, panels = chart(WIDTH, HEIGHT, len(rows), len(columns))
    figure.suptitle("Concept global importance")
    for axes, (key, values) in zip(panels, (each for row in rows for each in row), strict=True):
        finite = [value for value in values if math.isfinite(value)]
        mean = statistics.fmean(finite) if finite else math.nan
        counts, _, _ = axes.hist(finite, bins=40, range=(-1, 1), color=BLUE, rwidth=0.9)
        axes.axvline(mean, color=ORANGE)
        axes.set_title(f"{key.split('/')[1]}: mean {mean:.2f} of {len(finite)}, highest bar {max(1, max(counts)):.0f}")
        axes.set(xlim=(-1, 1), xticks=(-1.0, -0.5, 0.0, 0.5, 1.0), yticks=())
    return figure


def concept_panels(
    model: InterpretableModel,
    samples: Sequence[Mapping[str, Any]],
    named: NamedUnits,
    tables: ClassTables,
    class_names: Sequence[str],
) -> Image.Image:
    """The concepts that decided on some images, and where, as figures 3 and 4 of Aysel et al. (2025).

    For every image the five largest contributions θu with a tick for a concept of the image, a cross for one that it
    has not and neither where that is unknown, the maps of their units, and the map of the predicted class, the sum of
    all maps by their weights. Above as a heat map, each map from its lowest value (white) to its highest (orange);
    below only the twelfth of the pixels in which it is highest. Circles are the points of the concept's part in sight.

    Args:
        model: in evaluation mode.
        samples: with ``image``, ``concepts``, ``label``; ``part_points`` and ``part_visible`` if the data have them.
        named: units.
        tables: of the data.
        class_names: K names.
    """
    groups, titles = [], []
    for sample in samples:
        with torch.no_grad():
            output = model(sample["image"][None].to(named.weight.device))
        predicted = output.logits.argmax(dim=1)
        scores, weight = output.scores[:, named.ids], named.weight[:, named.ids]
        importance = concept_importance(scores, weight, predicted)
        ids, _ = most_important(importance, min(SHOWN, len(named.ids)))
        size = (sample["image"].shape[1], sample["image"].shape[2])
        whole = torch.einsum("u,uij->ij", named.weight[predicted[0]], output.maps[0])
        maps = torch.cat([output.maps[0, named.ids[ids[0]]], whole[None]])
        maps = upsample_maps(maps, size, "bilinear", model.geometry.lattice)
        concepts = named.concepts[ids[0]].tolist()
        truth = [None if value != value else value == 1 for value in truth_of(sample, "concepts").tolist()]
        captions = [
            (truth[concept], tables.concept_names[concept], float(importance[0, unit]))
            for concept, unit in zip(concepts, ids[0].tolist(), strict=True)
        ]
        groups.append(_panel(sample, maps.cpu(), captions, [_points(sample, tables, concept) for concept in concepts]))
        label, name = int(sample["label"]), class_names[int(predicted)]
        right = "right" if label == int(predicted) else f"it is {class_names[label]}"
        titles.append(f"{sample['sample_id']}: {name}, {right}")
    return sheet(groups, len(groups[0]) // 2, titles)


def _panel(
    sample: Mapping[str, Any],
    maps: Tensor,
    captions: Sequence[tuple[bool | None, str, float]],
    points: Sequence[Sequence[tuple[float, float]]],
) -> list[Image.Image]:
    """Two lines of tiles: the image, its concepts, the class."""
    image, tiles = sample["image"].cpu(), []
    for view in (_overlay, _region):
        line = [_tile(image, [], "image", "")]
        for (present, name, contribution), values, places in zip(captions, maps, points, strict=False):
            line.append(_tile(view(image, values), places, name, f"contribution {contribution:+.2g}", present))
        tiles += [*line, _tile(view(image, maps[-1]), [], "predicted class", "sum of all maps by weight")]
    return tiles


def _tile(
    pixels: Tensor, points: Sequence[tuple[float, float]], name: str, figures: str, present: bool | None = None
) -> Image.Image:
    """A picture with circles around points, above two lines; a tick or a cross before the first."""
    picture, scale = to_image(pixels), TILE / max(pixels.shape[1:])
    tile = Image.new("RGB", (TILE, TILE + 2 * LINE), WHITE)
    tile.paste(picture.resize((round(picture.width * scale), round(picture.height * scale)), Image.Resampling.NEAREST))
    draw = ImageDraw.Draw(tile)
    for x, y in points:
        for radius, colour in ((6, BLACK), (5, WHITE)):
            centre = ((x + 0.5) * scale, (y + 0.5) * scale)
            draw.circle(centre, radius, outline=colour, width=2)
    mark = 0 if present is None else LINE
    write_text(tile, (mark, TILE), name, TEXT, TILE - mark)
    write_text(tile, (0, TILE + LINE), figures, TEXT, TILE)
    if present is not None:
        strokes = [(2, 8), (5, 12), (11, 3)] if present else [(3, 3), (11, 11), (7, 7), (11, 3), (3, 11)]
        draw.line([(x, TILE + y) for x, y in strokes], fill=PRESENT if present else ABSENT, width=2)
    return tile


def _overlay(image: Tensor, values: Tensor) -> Tensor:
    """The grey image under the map in colours from its lowest value on, whatever its sign."""
    return heat_map(image, values - values.min())


def _region(image: Tensor, values: Tensor) -> Tensor:
    """The image where the map is highest, a twelfth of the pixels, and a faint trace of the rest."""
    size = max(1, region_size((image.shape[1], image.shape[2]), alpha=1.0))
    inside = values >= values.flatten().topk(size).values[-1]
    return torch.where(inside, image, 0.85 + 0.15 * image)


def _points(sample: Mapping[str, Any], tables: ClassTables, concept: int) -> list[tuple[float, float]]:
    """The points in sight of the part that a concept is about."""
    if tables.concept_to_part is None or tables.part_to_group is None or "part_points" not in sample:
        return []
    own = (tables.part_to_group == tables.concept_to_part[concept]) & sample["part_visible"]
    return [(float(x), float(y)) for x, y in sample["part_points"][own].floor()]


FAMILY = PictureFamily(
    concept_pictures,
    {
        "concept_importance": "How well the weights or scores of a concept fit the classes that have it; 1 is best.",
        "concept_panels": "The concepts that decided on some images, and where the model saw them: most where it is "
        "orange, and in the twelfth of the image that is shown below. Circles mark the part that a concept is about.",
    },
)
