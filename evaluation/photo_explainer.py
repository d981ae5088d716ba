"""Answers of a trained model for photos, as a service or a notebook needs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from protometry.datamodules.photos.one_photo import PhotoLike, read_photo
from protometry.evaluation.export.exported_model import open_model
from protometry.evaluation.pages.answer import Answer
from protometry.explanations import Explainer
from protometry.run_folder.model_folder import CARD


class PhotoExplainer:
    """Explains photos, also from several threads.

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
        self.opened = open_model(model, allow_classes=",".join(allow_classes))
        self.explained = self.opened.explained(explainer, size)
        self.classes, self.most, self.max_pixels = classes, most, max_pixels
        self._alone = Lock()  # explainers watch the layers of the model
        self._reading = Lock()  # Pillow has one limit for all, and large photos take hundreds of megabytes

    def __call__(self, photo: PhotoLike, crop: Sequence[int] | None = None) -> Answer:
        """Explain one photo.

        Args:
            photo: path of the file, its content, picture, pixels or sample, as :func:`.read_photo` takes them.
            crop: x, y, width and height in pixels, to which it is cut first, for models trained on crops.

        Raises:
            FileNotFoundError: if there is no such file.
            TypeError: if it is of another type.
            ValueError: if it is not an image or too large, or the crop does not lie on it.
        """
        (answer,) = self.explain([self.read(photo, crop)])
        return answer

    def read(self, photo: PhotoLike, crop: Sequence[int] | None = None) -> dict[str, Any]:
        """The photo as the model sees it, for :meth:`explain`; arguments and errors are those of a call."""
        with self._reading:
            return read_photo(photo, self.explained.datamodule, crop, self.max_pixels)

    def explain(self, samples: Sequence[Mapping[str, Any]]) -> list[Answer]:
        """Explain several photos at once, which takes about half as long on a CPU.

        Layers round differently for other numbers of images, so numbers agree with those of single photos to about
        1e-6 of the largest, not to the last bit.
        """
        with self._alone:
            images = self.explained.explain(samples, "the answer", self.classes, self.most)
        return [Answer(image, self.explained) for image in images]

    def description(self) -> dict[str, Any]:
        """What the model is, as plain data; ``card`` is the text of an exported model's card, else None."""
        explained, card = self.explained, self.opened.path / CARD
        return {
            "model": type(explained.model).__name__,
            "classes": explained.class_names,
            "multilabel": explained.threshold is not None,
            "image_size": list(explained.datamodule.image_size),
            "units": int(explained.units.active.sum()),
            "explainer": explained.explained_by,
            "card": card.read_text("utf-8") if card.is_file() else None,
        }
