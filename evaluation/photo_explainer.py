"""Answers of a trained model for photos, as a service or a notebook needs them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from protometry.datamodules.photos.one_photo import PhotoLike, read_photo
from protometry.evaluation.export.exported_model import open_model
from protometry.evaluation.pages.answer import Answer
from protometry.explanations import Explainer


class PhotoExplainer:
    """Explains photos, one at a time, also from several threads.

    ::

        explainer = PhotoExplainer("model/")
        answer = explainer("photo.jpg")
        print(answer.prediction, answer.probability, [(unit.name, unit.contribution) for unit in answer.units])

    Args:
        model: a folder of ``protometry export``; or a checkpoint, whose data must be at hand.
        explainer: makes the maps; by default the one that ``choose_explainer`` finds for the model.
        size: longer side of the pictures of units in pixels, at most 256.
        classes: how many classes pages explain, those with the largest logits; each takes about as long as the first.
        most: lines for each.
        max_pixels: of a photo file that is read, 160 million by default.
        allow_classes: packages whose classes the model may name besides this project's.

    Raises:
        FileNotFoundError: if there is no such model.
        ValueError: if it is damaged, or the explainer does not fit.
    """

    def __init__(  # noqa: PLR0913 - all but the first are options
        self,
        model: str | Path,
        explainer: Explainer | None = None,
        *,
        size: int = 144,
        classes: int = 1,
        most: int = 5,
        max_pixels: int | None = None,
        allow_classes: Sequence[str] = (),
    ) -> None:
        self.explained = open_model(model, allow_classes=",".join(allow_classes)).explained(explainer, size)
        self.classes, self.most, self.max_pixels = classes, most, max_pixels
        self._alone = Lock()  # explainers watch the layers of the model, and Pillow has one limit for all

    def __call__(self, photo: PhotoLike, crop: Sequence[int] | None = None) -> Answer:
        """Explain one photo.

        Args:
            photo: path of the file, or its content; or a picture of Pillow, or ``(H, W[, 3])`` uint8.
            crop: x, y, width and height in pixels, to which it is cut first, for models trained on crops.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is not an image or too large, or the crop does not lie on it.
        """
        with self._alone:
            sample = read_photo(photo, self.explained.datamodule, crop, self.max_pixels)
            (image,) = self.explained.explain([sample], "the answer", self.classes, self.most)
            return Answer(image, self.explained)
