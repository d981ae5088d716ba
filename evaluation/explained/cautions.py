"""When an explained image should not be trusted, as sentences for its picture and its page."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.nn.functional import normalize

from protometry.explanations.views import Box
from protometry.run_folder.command_line.messages import counted

NEARLY_ALL = 0.75  # of the image, above which a box says little about where a unit looks
UNLIKE, NONE_OF_THEM = 0.95, 0.99  # shares of training images with a nearer neighbour that are worth a sentence


class Neighbours:
    """Training images as a model sees them, which tell photos that are unlike all of them.

    A photo is unlike them if nearly every training image has a nearer neighbour among the others than the photo has
    among all of them. Source: Sun et al. (2022), Out-of-Distribution Detection with Deep Nearest Neighbors, with the
    cosine similarity, k = 1 and a threshold from the training images themselves.

    Args:
        embeddings: ``(n, D)`` float, means over cells of the latents of n training images.
    """

    def __init__(self, embeddings: Tensor) -> None:
        self.embeddings = embeddings.float()
        self._images = normalize(self.embeddings, dim=1)
        self._nearest = (self._images @ self._images.T).fill_diagonal_(-1).amax(dim=1)

    def cautions(self, latent: Tensor) -> list[str]:
        """A sentence if the image of a latent ``(D, h, w)`` is unlike the training images.

        Raises:
            ValueError: if the training images have another number of channels, as in a damaged export.
        """
        if len(latent) != self.embeddings.shape[1]:
            raise ValueError(
                f"Expected embeddings of training images with {len(latent)} channels, as the latent of the model has, "
                f"but got {self.embeddings.shape[1]}. Export the model again."
            )
        image = normalize(latent.detach().cpu().float().mean(dim=(1, 2)), dim=0)
        closest = float((self._images @ image).amax())
        share = float((self._nearest > closest).double().mean())
        if share < UNLIKE:
            return []
        most = "all" if share == 1 else f"{100 * share:.0f} % of"
        none = ": it may show none of the classes" if share >= NONE_OF_THEM else ""
        return [
            f"It is unlike the training images{none}. Its similarity to the nearest one is {closest:.3g}, and {most} "
            f"{counted(len(self._nearest), 'training image')} have a nearer one."
        ]


def cautions(boxes: Sequence[Box | None], size: tuple[int, int], uncropped: bool) -> list[str]:
    """What to know of the boxes before an explanation is read.

    Args:
        boxes: of the units that are shown, inclusive pixels.
        size: ``(H, W)`` pixels of the image.
        uncropped: whether it is a whole photo, for a model that was trained on crops.
    """
    texts = []
    if uncropped:
        texts.append("The model was trained on crops, and this is a whole photo: give `--crop X Y WIDTH HEIGHT`.")
    if large := sum(share(box, size) > NEARLY_ALL for box in boxes):
        of, verb = counted(len(boxes), "box"), "covers" if large == 1 else "cover"
        texts.append(f"{large} of {of} {verb} more than three quarters of the image: no sign of where the unit looks.")
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
