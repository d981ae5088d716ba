"""Which classes are confused: the matrix as a picture, the most frequent confusions as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lightning.pytorch.loggers import Logger
from matplotlib.figure import Figure
from torch import Tensor

from protometry.callbacks.run.loggers import log_images, log_table
from protometry.explanations.charts import GREY, chart, styled, to_picture
from protometry.explanations.views import cut_text

COLUMNS = ("true class", "predicted class", "images", "share of true class")
SIDE, NAMES, BELOW, FONT = 640, 150, 40, 12  # pixels of the matrix, at most, of its margins, and of letters


def confusions(counts: Tensor, class_names: Sequence[str], limit: int = 100) -> list[tuple[str, str, int, float]]:
    """The most frequent confusions.

    Args:
        counts: ``(K, K + 1)`` int64 images by true and predicted class; the last column means no prediction.
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
    largest = [(true, predicted, int(wrong[true, predicted])) for true, predicted in cells[:limit]]
    return [(names[true], names[predicted], count, count / of_class[true]) for true, predicted, count in largest]


@styled
def confusion_matrix(counts: Tensor, class_names: Sequence[str]) -> Figure:
    """The matrix: rows are true classes, columns predicted ones, the last column no prediction; dark is frequent.

    Args:
        counts: as above.
        class_names: K names, written where rows are high enough.
    """
    share = counts.double() / counts.sum(dim=1, keepdim=True).clamp(min=1)
    cell, classes = max(2, SIDE // counts.shape[1]), len(counts)
    figure, (axes,) = chart(NAMES + cell * (classes + 1), BELOW + cell * classes)
    axes.imshow(share.cpu().numpy(), cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    axes.axvline(classes - 0.5, color=GREY)
    axes.set(xlabel="predicted class, in the same order; last column: no prediction", ylabel="true class")
    axes.set_xticks([])
    axes.set_yticks(
        range(classes), [cut_text(name, FONT, NAMES) for name in class_names]
    ) if cell > FONT else axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines[:].set_visible(True)
    return figure


def log_confusion(
    loggers: Iterable[Logger], counts: Tensor | None, class_names: Sequence[str], split: str, step: int
) -> None:
    """Send both to the loggers, as ``media/confusion/<split>`` and ``tables/confusion/<split>``.

    Args:
        loggers: of the trainer.
        counts: as above; None for multilabel data, which has no matrix.
        class_names: K names.
        split: the images counted.
        step: the trainer's ``global_step``.
    """
    if counts is None:
        return
    total, right = int(counts.sum()), int(counts.diagonal().sum())
    caption = f"{total - right} of {total} images wrong"
    log_images(
        loggers, f"media/confusion/{split}", [to_picture(confusion_matrix(counts, class_names))], [caption], step
    )
    log_table(loggers, f"tables/confusion/{split}", COLUMNS, confusions(counts, class_names), step)
