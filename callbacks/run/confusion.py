"""Which classes are taken for which: the matrix as a picture, the most frequent confusions as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lightning.pytorch.loggers import Logger
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from callbacks.run.loggers import log_images, log_table
from explanations.views import BLACK, WHITE, cut_text, to_image

COLUMNS = ("true class", "predicted class", "images", "share of true class")
SIDE, NAMES, FONT = 640, 150, 12  # pixels of the matrix, at most, and of the names of its rows


def confusions(counts: Tensor, class_names: Sequence[str], limit: int = 100) -> list[tuple[str, str, int, float]]:
    """The most frequent confusions.

    Args:
        counts: ``(K, K + 1)`` int64 images by true and predicted class; the last column is no prediction.
        class_names: K names.
        limit: the most rows.

    Returns:
        True class, predicted class, images and their share of the true class; the most images first, on ties in the
        order of the classes.

    Example:
        >>> import torch
        >>> confusions(torch.tensor([[3, 1, 0], [0, 2, 2]]), ["crow", "jay"])
        [('jay', 'no prediction', 2, 0.5), ('crow', 'jay', 1, 0.25)]
    """
    names = [*class_names, "no prediction"]
    of_class = counts.sum(dim=1).tolist()
    wrong = counts.clone()
    wrong.fill_diagonal_(0)
    cells = sorted(wrong.nonzero().tolist(), key=lambda cell: (-int(wrong[cell[0], cell[1]]), cell))
    found = [(true, predicted, int(wrong[true, predicted])) for true, predicted in cells[:limit]]
    return [(names[true], names[predicted], count, count / of_class[true]) for true, predicted, count in found]


def confusion_picture(counts: Tensor, class_names: Sequence[str]) -> Image.Image:
    """The matrix: rows are true classes, columns predicted ones, the last column no prediction; dark is frequent.

    Args:
        counts: as above.
        class_names: K names, written where rows are high enough.
    """
    share = counts.double() / counts.sum(dim=1, keepdim=True).clamp(min=1)
    cell = max(2, SIDE // counts.shape[1])
    pixels = (1 - share).repeat_interleave(cell, 0).repeat_interleave(cell, 1)
    matrix = to_image(pixels.expand(3, -1, -1))
    top = 2 * FONT + 8
    picture = Image.new("RGB", (NAMES + matrix.width + 8, top + matrix.height + 8), WHITE)
    picture.paste(matrix, (NAMES, top))
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(FONT)
    draw.rectangle((NAMES - 1, top - 1, NAMES + matrix.width, top + matrix.height), outline=BLACK)
    draw.line([(NAMES + matrix.width - cell, top), (NAMES + matrix.width - cell, top + matrix.height)], fill="#808080")
    draw.text((NAMES, 4), "predicted class, in the same order; last column: no prediction", fill=BLACK, font=font)
    draw.text((NAMES - 6, 4), "true class", fill=BLACK, font=font, anchor="ra")
    for row, name in enumerate(class_names if cell > FONT else ()):
        place = (NAMES - 6, top + row * cell + cell / 2)
        draw.text(place, cut_text(name, FONT, NAMES - 12), fill=BLACK, font=font, anchor="rm")
    return picture


def log_confusion(
    loggers: Iterable[Logger], counts: Tensor | None, class_names: Sequence[str], split: str, step: int
) -> None:
    """Send both to the loggers, as ``media/confusion/<split>`` and ``tables/confusion/<split>``.

    Args:
        loggers: of the trainer.
        counts: as above; None for multilabel data, of which nothing is sent.
        class_names: K names.
        split: the images counted.
        step: the trainer's ``global_step``.
    """
    if counts is None:
        return
    total, right = int(counts.sum()), int(counts.diagonal().sum())
    caption = f"{total - right} of {total} images wrong"
    log_images(loggers, f"media/confusion/{split}", [confusion_picture(counts, class_names)], [caption], step)
    log_table(loggers, f"tables/confusion/{split}", COLUMNS, confusions(counts, class_names), step)
