"""Pictures of what classes are represented by: the class-by-feature matrix, and the classes that look most alike."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from PIL import Image, ImageColor, ImageDraw
from torch import Tensor

from protometry.evaluation.pictures.family import Evaluated, PictureFamily
from protometry.explanations.views import AGAINST, FOR, GAP, WHITE, sheet, to_image
from protometry.metrics.functional import class_similarity, similar_class_pairs
from protometry.run_folder.text_in_pictures import cut_text, width_of, write_text

CELL, TEXT, NAME_WIDTH, BAR = 14, 11, 190, 100
MOST_COLUMNS = 1600  # pixels of all features together
SHOWN_FEATURES = 5  # of each class of a pair
TILE_WIDTH = NAME_WIDTH + BAR + (4 + 2 * SHOWN_FEATURES) * CELL


def class_pictures(evaluated: Evaluated) -> dict[str, Image.Image]:
    """What classes are made of, and, where structural grounding was measured, the classes that look most alike."""
    explained, keys = evaluated.explained, evaluated.metrics
    units, tables, class_names = explained.units, explained.datamodule.tables, explained.class_names
    if units.weight is None or not any(key.startswith("class_representation/") for key in keys):
        return {}
    weight = units.weight.detach().masked_fill(~units.active, 0).cpu().double()
    if not weight.any():
        return {}
    features = [explained.concept_name(unit) or str(unit) for unit in range(weight.shape[1])]
    pictures = {"class_features": class_feature_matrix(weight, class_names, features)}
    if "class_representation/structural_grounding" in keys and tables.class_attributes is not None:
        attributes = tables.class_attributes.cpu().double()
        names = (class_names, features, tables.attribute_names)
        pictures["nearest_classes"] = nearest_classes(weight, attributes, *names)
    return pictures


def class_feature_matrix(weight: Tensor, class_names: Sequence[str], feature_names: Sequence[str]) -> Image.Image:
    """The head weights of all classes and features, as in Norrenbrock et al. (2025).

    A row is a class; a column is a feature with a weight that is not 0, ordered by the class it counts for most.
    Orange counts for the class, blue against it; the largest magnitude has the full colour.

    Args:
        weight: ``(K, U)`` float64 head weights without bias, some of them not 0; 0 for units that are not active.
        class_names: K names.
        feature_names: U names, such as the numbers of the units.

    Returns:
        A picture of K rows of 14 pixels; features are named as long as all of them fit into 1600 pixels.
    """
    used = (weight != 0).any(dim=0).nonzero().squeeze(1)
    used = used[weight[:, used].argmax(dim=0).argsort(stable=True)]
    width = max(1, min(CELL, MOST_COLUMNS // len(used)))
    named = [feature_names[unit] for unit in used.tolist()] if width == CELL else []
    cells = _cells(weight[:, used] / weight.abs().max(), width)
    top = _height(named)
    picture = Image.new("RGB", (NAME_WIDTH + cells.width + GAP, top + cells.height + GAP), WHITE)
    picture.paste(cells, (NAME_WIDTH, top))
    _name(picture, named, NAME_WIDTH, top)
    for row, name in enumerate(class_names):
        write_text(picture, (GAP, top + row * CELL), name, TEXT, NAME_WIDTH - 2 * GAP)
    return picture


def nearest_classes(
    weight: Tensor,
    class_attributes: Tensor,
    class_names: Sequence[str],
    feature_names: Sequence[str],
    attribute_names: Sequence[str],
    pairs: int = 25,
) -> Image.Image:
    """The pairs of classes with the most similar attributes, what separates them, and how the model distinguishes them.

    Source: the pairs of structural grounding, Norrenbrock et al. (2025). A tile names two classes, the cosine
    similarity of their attributes and of their weights, the attribute with the largest difference of class frequencies
    (the first of several), and the weights of the five features with the largest magnitude of each class.

    Args:
        weight: as above.
        class_attributes: ``(K, A)`` float64 in 0..1, frequency of each attribute in each class.
        class_names: K names.
        feature_names: U names.
        attribute_names: A names.
        pairs: the most pairs to show.
    """
    truth, model = class_similarity(class_attributes), class_similarity(weight)
    top = 2 * CELL + _height(feature_names)  # of the rows of the two classes, below the lines of text
    tiles = []
    for one, other in similar_class_pairs(class_attributes, pairs).tolist():
        column = int((class_attributes[one] - class_attributes[other]).abs().argmax())
        tile = Image.new("RGB", (TILE_WIDTH, top + 3 * CELL), WHITE)
        similarity = f"cosine of attributes {truth[one, other]:.3f}, of weights {model[one, other]:.3f}"
        write_text(tile, (0, CELL), similarity, TEXT, TILE_WIDTH)
        write_text(tile, (0, 2 * CELL), f"separated most by {attribute_names[column]}", TEXT, TILE_WIDTH)
        for row, label in enumerate((one, other)):
            _bar(tile, class_names[label], float(class_attributes[label, column]), top + row * CELL)
        _features(tile, weight[[one, other]] / weight.abs().max(), feature_names, top)
        tiles.append(tile)
    return sheet([tiles], 3, [f"The {len(tiles)} pairs of classes with the most similar attributes"])


def _bar(tile: Image.Image, name: str, share: float, top: int) -> None:
    """The name of a class, and how often it has the attribute."""
    write_text(tile, (0, top), name, TEXT, NAME_WIDTH - GAP)
    draw, left = ImageDraw.Draw(tile), NAME_WIDTH
    draw.rectangle((left, top + 2, left + BAR - 1, top + CELL - 3), outline="#c0c0c0")
    draw.rectangle((left, top + 2, left + round(share * (BAR - 1)), top + CELL - 3), fill="#606060")
    write_text(tile, (left + BAR + GAP, top), f"{share:.0%}", TEXT, 3 * CELL)


def _features(tile: Image.Image, rows: Tensor, feature_names: Sequence[str], top: int) -> None:
    """The ``(2, U)`` weights of two classes for the features that matter most to either."""
    features = torch.unique(rows.abs().argsort(dim=1, descending=True, stable=True)[:, :SHOWN_FEATURES])
    features = features[(rows[:, features] != 0).any(dim=0)]
    if len(features):
        left = NAME_WIDTH + BAR + 3 * CELL
        tile.paste(_cells(rows[:, features], CELL), (left, top))
        _name(tile, [feature_names[unit] for unit in features.tolist()], left, top)


def _cells(values: Tensor, width: int) -> Image.Image:
    """``(rows, columns)`` values in -1..1 as cells of ``width`` pixels and the height of a line, with lines between."""
    signs = torch.tensor([ImageColor.getrgb(AGAINST), ImageColor.getrgb(FOR)]).double().div(255)
    colours = signs[(values > 0).long()]
    pixels = 1 - values.abs()[..., None] * (1 - colours)
    pixels = pixels.repeat_interleave(CELL, 0).repeat_interleave(width, 1)
    if width == CELL:
        pixels[::CELL] = pixels[:, ::CELL] = 0.9
    return to_image(pixels.movedim(2, 0))


def _height(names: Sequence[str]) -> int:
    """Pixels that upright names and the gaps around them need."""
    return 2 * GAP + min(round(max((width_of(name, TEXT) for name in names), default=0)), NAME_WIDTH)


def _name(picture: Image.Image, names: Sequence[str], left: int, bottom: int) -> None:
    """The names of features, upright above their columns."""
    for column, name in enumerate(names):
        text = cut_text(name, TEXT, NAME_WIDTH)
        label = Image.new("RGB", (round(width_of(text, TEXT)), CELL), WHITE)
        write_text(label, (0, 0), text, TEXT)
        label = label.rotate(90, expand=True)
        picture.paste(label, (left + column * CELL, bottom - GAP - label.height))


FAMILY = PictureFamily(
    class_pictures,
    {
        "class_features": "The weight of every feature for every class: orange counts for the class, blue against it.",
        "nearest_classes": "The pairs of classes with the most similar attributes, and the features that tell them "
        "apart.",
    },
)
