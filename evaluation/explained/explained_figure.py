"""One explained image as a picture: this looks like that, and how much it contributes to the decision."""

from __future__ import annotations

from typing import Any

from PIL import Image, ImageDraw

from protometry.datamodules.photos.one_photo import PhotoLike, read_photo
from protometry.evaluation.explained.additive import AdditiveTable, Amount
from protometry.evaluation.explained.explained_model import ExplainedImage, ExplainedModel, UnitRow
from protometry.explanations import Explainer
from protometry.explanations.views import AGAINST, FOR, GAP, WHITE, draw_numbered, fit
from protometry.lightning_modules.contract import InterpretableModel
from protometry.run_folder.text_in_pictures import write_text

FONT, TITLE, LINE = 13, 18, 18
TEXT_WIDTH, GREY, RED = 300, "#595959", "#a11a1a"
VALUE = 56  # pixels in front of a bar


def explain(
    model: InterpretableModel,
    datamodule: Any,
    photo: PhotoLike,
    explainer: Explainer | None = None,
    size: int = 144,
    most: int = 5,
) -> Image.Image:
    """Explain one photo, for a notebook.

    ::

        model, data = load_model(checkpoint), load_datamodule(checkpoint)
        explain(model, data, "photo.jpg")
        explain(model, data, data.dataset("test")[3])

    Args:
        model: in evaluation mode.
        datamodule: of the data it was trained on.
        photo: path of the file, its content, picture, pixels or sample, as :func:`.read_photo` takes them.
        explainer: makes the maps; by default the one that ``choose_explainer`` finds for the model.
        size: longer side of each photo in pixels.
        most: places to show.

    Raises:
        FileNotFoundError: if there is no such file.
        TypeError: if the photo is of another type.
        ValueError: if it cannot be read, the contributions do not sum to the logit, or the explainer does not support
            the model.
    """
    explained = ExplainedModel(model, datamodule, explainer, size)
    (image,) = explained.explain([read_photo(photo, datamodule)], "the figure", classes=1, most=most)
    return explained_figure(image, explained)


def explained_figure(image: ExplainedImage, explained: ExplainedModel) -> Image.Image:
    """The strongest units for the class with the largest logit, one line for each place, ending with the logit.

    On the left, the image with the boxes of all lines by their numbers. A line shows where the unit looks (heat map,
    crop), the photo that stands for the unit (crop, photo), and what it adds to the logit less the mean over classes,
    with the other units at the same place. Bars have one scale. Of a tree, the lines are the nodes on the path of the
    image.
    """
    (table, rows), size = image.tables[0], explained.size
    has_sources = any(row.source for row in rows)
    panels, whole = 4 if has_sources else 2, draw_numbered(*image.numbered(rows, 2 * size))
    left = whole.width + 4 * GAP
    width = left + panels * (size + GAP) + (4 * GAP if has_sources else 0) + TEXT_WIDTH
    header = TITLE + LINE * (1 + len(image.cautions)) + 4 * GAP
    height = header + max(len(rows) * (size + GAP), whole.height + 4 * LINE) + 6 * LINE + GAP
    picture = Image.new("RGB", (width, height), WHITE)
    write_text(picture, (GAP, GAP), _title(image, explained), TITLE, width)
    for index, text in enumerate(image.cautions):
        write_text(picture, (GAP, TITLE + 3 * GAP + index * LINE), text, FONT, width - GAP, RED)
    write_text(picture, (left, header - LINE - GAP), "what it sees here", FONT, 3 * size, GREY)
    if has_sources:
        there = left + 2 * (size + GAP) + 4 * GAP
        write_text(picture, (there, header - LINE - GAP), "looks like this", FONT, 2 * size, GREY)
    picture.paste(whole, (GAP, header))
    for index, text in enumerate(_facts(image, explained)):
        write_text(picture, (GAP, header + whole.height + GAP + index * LINE), text, FONT, whole.width, GREY)
    top = header
    added = [*(row.line.total for row in rows), table.rest, table.bias, table.residual]
    scale = max((abs(amount.value) for amount in added if amount is not None), default=0.0) or 1.0
    for row in rows:
        _draw_row(picture, row, (left, top), size, scale)
        top += size + GAP
    for text, value, amount in _sums(table, explained):
        write_text(picture, (width - TEXT_WIDTH - 4 * GAP, top), text, FONT, anchor="ra")
        _draw_value(picture, (width - TEXT_WIDTH, top), value, amount, scale)
        top += LINE
    return picture.crop((0, 0, width, max(top + GAP, header + whole.height + 4 * LINE)))


def _draw_row(picture: Image.Image, row: UnitRow, place: tuple[int, int], size: int, scale: float) -> None:
    left, top = place
    for panel in (fit(row.view.heat, size), row.view.crop):
        picture.paste(panel, (left, top))
        left += size + GAP
    if row.source is not None:
        left += 4 * GAP
        for panel in (row.source.view.crop, row.source.view.photo):
            picture.paste(panel, (left, top))
            left += size + GAP
    line, text_left = row.line, picture.width - TEXT_WIDTH
    write_text(picture, (text_left, top), f"{row.number}  {row.title}", FONT, TEXT_WIDTH - GAP)
    if line.is_node:
        write_text(picture, (text_left, top + LINE), f"{line.branch}: {line.contribution.value:.1%}", FONT)
    else:
        _draw_value(picture, (text_left, top + LINE), f"{line.total.value:+.3g}", line.total, scale)
    texts = [f"with {len(row.same)} more at the same place"] if row.same else []
    if row.source is not None:
        texts += [f"of {row.source.class_name}, {row.source.origin}", row.source.sample_id]
    texts += [", ".join(row.flags)] if row.flags else []
    for index, text in enumerate(texts, start=2):
        write_text(picture, (text_left, top + index * LINE), text, FONT, TEXT_WIDTH - GAP, GREY)


def _draw_value(picture: Image.Image, place: tuple[int, int], text: str, amount: Amount | None, scale: float) -> None:
    """A value, and a bar that begins in the middle of what is left of the line."""
    write_text(picture, place, text, FONT)
    if amount is not None:
        left, top, half = place[0] + VALUE, place[1], (TEXT_WIDTH - VALUE - 2 * GAP) // 2
        ends = sorted((left + half, left + half + round(amount.value / scale * half)))
        colour = FOR if amount.value >= 0 else AGAINST
        ImageDraw.Draw(picture).rectangle((ends[0], top + 2, ends[1], top + FONT), fill=colour)


def _title(image: ExplainedImage, explained: ExplainedModel) -> str:
    if image.abstains:
        return f"{image.sample_id}: the model abstains, no class has any evidence"
    said = "predicted" if explained.threshold is None else "explained: the label with the largest logit,"
    return f"{image.sample_id}: {said} {image.named_class}"


def _facts(image: ExplainedImage, explained: ExplainedModel) -> list[str]:
    truth = [f"true: {', '.join(image.truth)}"] if image.truth else []
    said = [] if explained.threshold is None else [f"predicted: {image.predicted}"]
    return [*truth, *said, f"explained by {explained.explainer.key}"]


def _sums(table: AdditiveTable, explained: ExplainedModel) -> list[tuple[str, str, Amount | None]]:
    """The lines below the units: text, value, and what a bar stands for."""
    name, last = explained.class_names[table.label], f"logit above {table.against}"
    if table.tree_path is not None:
        paths = [(text, f"{chance:.1%}", None) for text, chance in table.path_sums(name)]
        return [*paths, (f"probability of {name}", f"= {table.probability:.1%}", None)]
    added = [(text, f"{amount.value:+.3g}", amount) for text, amount in table.sums]
    return [*added, (last, f"= {table.margin.value:.3g}", None)]
