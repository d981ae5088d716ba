"""One explained image as a picture: this looks like that, and what it adds to the logit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PIL import Image

from explanations import Explainer
from explanations.views import BLACK, GAP, WHITE, write_text
from lightning_modules.contract import InterpretableModel
from reports.additive import AdditiveTable
from reports.explained_model import ExplainedImage, ExplainedModel, Row

FONT, TITLE, LINE = 13, 18, 18
TEXT_WIDTH, GREY, FOR, AGAINST = 300, "#595959", "#14612b", "#a11a1a"


def explain(
    model: InterpretableModel,
    datamodule: Any,
    sample: Mapping[str, Any],
    explainer: Explainer | None = None,
    size: int = 144,
    most: int = 5,
) -> Image.Image:
    """Explain one image, for a notebook.

    ::

        model, data = load_model(checkpoint), load_datamodule(checkpoint)
        explain(model, data, data.dataset("test")[3])

    Args:
        model: in evaluation mode.
        datamodule: of the data it was trained on.
        sample: of the data, or any mapping with ``image``, (3, H, W) float32 in [0, 1], and ``sample_id``.
        explainer: makes the maps; by default PRP where it supports the model, else upsampled maps.
        size: longer side of each photo in pixels.
        most: units to show.

    Returns:
        The picture of :func:`explained_figure`.

    Raises:
        ValueError: if the contributions do not sum to the logit, or the explainer does not support the model.
    """
    subject = ExplainedModel(model, datamodule, explainer, size)
    (explained,) = subject.explain([sample], "the figure", classes=1, most=most)
    return explained_figure(explained, subject)


def explained_figure(explained: ExplainedImage, subject: ExplainedModel) -> Image.Image:
    """The strongest units for the predicted class, one a line, down to the logit.

    A line shows where the unit looks in the image (photo, heat map, crop), the photo that stands for the unit (crop,
    photo), and score x weight = contribution.

    Args:
        explained: the image.
        subject: the model that explained it.
    """
    (table, rows), size = explained.tables[0], subject.size
    has_sources = any(row.source for row in rows)
    panels = 5 if has_sources else 3
    left = size + 4 * GAP
    width = left + panels * (size + GAP) + (4 * GAP if has_sources else 0) + TEXT_WIDTH
    cautions = subject.cautions(explained)
    header = TITLE + LINE * (1 + len(cautions)) + 4 * GAP
    height = header + max(len(rows) * (size + GAP), size + 4 * LINE) + 6 * LINE
    picture = Image.new("RGB", (width, height), WHITE)
    write_text(picture, (GAP, GAP), _title(explained, subject), TITLE, width)
    for index, text in enumerate(cautions):
        write_text(picture, (GAP, TITLE + 3 * GAP + index * LINE), text, FONT, width - GAP, AGAINST)
    write_text(picture, (left, header - LINE - GAP), "what it sees here", FONT, 3 * size, GREY)
    if has_sources:
        there = left + 3 * (size + GAP) + 4 * GAP
        write_text(picture, (there, header - LINE - GAP), "looks like this", FONT, 2 * size, GREY)
    picture.paste(explained.photo, (GAP, header))
    for index, text in enumerate(_facts(explained, subject)):
        write_text(picture, (GAP, header + size + GAP + index * LINE), text, FONT, size, GREY)
    top = header
    for row in rows:
        _draw_row(picture, row, (left, top), size)
        top += size + GAP
    for text, value in _sums(table, subject):
        write_text(picture, (width - TEXT_WIDTH, top), f"{value}   {text}", FONT, TEXT_WIDTH)
        top += LINE
    return picture.crop((0, 0, width, max(top + GAP, header + size + 4 * LINE)))


def _draw_row(picture: Image.Image, row: Row, place: tuple[int, int], size: int) -> None:
    left, top = place
    panels = [row.view.photo, row.view.heat, row.view.crop]
    for panel in panels:
        picture.paste(panel, (left, top))
        left += size + GAP
    if row.source is not None:
        left += 4 * GAP
        for panel in (row.source.view.crop, row.source.view.photo):
            picture.paste(panel, (left, top))
            left += size + GAP
    line, text_left = row.line, picture.width - TEXT_WIDTH
    texts = [(row.name + (f" · {row.part}" if row.part else ""), BLACK)]
    if row.source is not None:
        texts.append((f"of {row.source.class_name}, {row.source.origin}", GREY))
        texts.append((row.source.sample_id, GREY))
    weighed = f"score {line.score:.4g}, loses " if line.weight is None else f"{line.score:.4g} x {line.weight:.4g} = "
    texts.append((f"{weighed}{line.contribution:+.4g}", FOR if line.contribution >= 0 else AGAINST))
    texts += [(", ".join(row.flags), GREY)] if row.flags else []
    for index, (text, colour) in enumerate(texts):
        write_text(picture, (text_left, top + index * LINE), text, FONT, TEXT_WIDTH - GAP, colour)


def _title(explained: ExplainedImage, subject: ExplainedModel) -> str:
    table = explained.tables[0][0]
    if explained.abstains:
        return f"{explained.sample_id}: the model abstains, no class has any evidence"
    predicted = f"{subject.class_names[table.label]}, {100 * table.probability:.1f} %"
    logit = "" if table.bias is None else f" (logit {table.logit:.4g})"
    return f"{explained.sample_id}: predicted {predicted}{logit}"


def _facts(explained: ExplainedImage, subject: ExplainedModel) -> list[str]:
    truth = [f"true: {', '.join(explained.truth)}"] if explained.truth else []
    return [*truth, f"explained by {subject.explainer.key}"]


def _sums(table: AdditiveTable, subject: ExplainedModel) -> list[tuple[str, str]]:
    """The lines below the units."""
    if table.bias is None:
        return [("log-probability; losses do not add up", f"{table.logit:.4g}")]
    lines = [(table.others_named, f"{table.rest:+.4g}"), ("bias", f"{table.bias:+.4g}")]
    if table.residual is not None:
        lines.append(("residual, not from units", f"{table.residual:+.4g}"))
    return [*lines, (f"logit of {subject.class_names[table.label]}", f"= {table.logit:.4g}")]
