"""When an explained image should not be trusted, as sentences for its picture and its page."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from protometry.explanations.views import Box
from protometry.run_folder.command_line.messages import counted

NEARLY_ALL = 0.75  # of the image, above which a box says little about where a unit looks
LOW, UNLIKE = 0.9, 0.99  # shares of training images with a higher similarity that are worth a sentence


def cautions(
    boxes: Sequence[Box | None], size: tuple[int, int], best: float, reference: Tensor | None, uncropped: bool
) -> list[str]:
    """What to know before an explanation is read.

    Args:
        boxes: of the units that are shown, inclusive pixels.
        size: ``(H, W)`` pixels of the image.
        best: highest score of a unit.
        reference: ``best_similarities`` of :class:`.UnitSources`; None for units whose scores are not similarities to
            training patches. Scores of features, concepts and classes have no upper bound, and noise often has larger
            ones than any training image.
        uncropped: whether it is a whole photo, for a model that was trained on crops.
    """
    texts = []
    if uncropped:
        texts.append("The model was trained on crops, and this is a whole photo: give `--crop X Y WIDTH HEIGHT`.")
    if large := sum(share(box, size) > NEARLY_ALL for box in boxes):
        of, verb = counted(len(boxes), "box"), "covers" if large == 1 else "cover"
        texts.append(f"{large} of {of} {verb} more than three quarters of the image: no sign of where the unit looks.")
    above = 0.0 if reference is None else float((reference > best).double().mean())
    if reference is not None and above >= LOW:
        most, images = "all" if above == 1 else f"{100 * above:.0f} % of", counted(len(reference), "training image")
        more = ": it may show none of the classes." if above >= UNLIKE else "."
        texts.append(f"Its highest similarity is {best:.3g}, and {most} {images} have a higher one{more}")
    return texts


def share(box: Box | None, size: tuple[int, int]) -> float:
    """Share of an image in a box, 0 without one.

    Example:
        >>> share((0, 0, 3, 1), (4, 4)), share(None, (4, 4))
        (0.5, 0.0)
    """
    if box is None:
        return 0.0
    x0, y0, x1, y1 = box
    return (x1 - x0 + 1) * (y1 - y0 + 1) / (size[0] * size[1])
