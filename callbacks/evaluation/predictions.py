"""What a model predicts for an image, with its probability: for the files of an evaluation and for ``predict``."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Prediction:
    """The prediction for one image.

    Args:
        label: the classes of the image, one unless the data are multilabel, in ascending order; None if unknown.
        classes: the predicted ones, none where the model abstains; any number, in ascending order, if multilabel.
        probabilities: of ``classes``.
        unknown: labels that the image may or may not have.

    Example:
        >>> Prediction(label=(2,), classes=(), probabilities=()).correct
        False
    """

    label: tuple[int, ...] | None
    classes: tuple[int, ...]
    probabilities: tuple[float, ...]
    unknown: tuple[int, ...] = ()

    @property
    def correct(self) -> bool | None:
        """Whether exactly the classes of the image are predicted, as ``general/accuracy`` counts; None if unknown."""
        return None if self.label is None else tuple(i for i in self.classes if i not in self.unknown) == self.label


def of_predicted(probabilities: Tensor, predicted: Tensor) -> Tensor:
    """``(B,)`` of the predicted class, or if multilabel ``(B, K)`` of all, from ``(B, K)`` probabilities."""
    if predicted.ndim == 2:
        return probabilities
    return probabilities.gather(1, predicted.clamp_min(0)[:, None]).squeeze(1)


def as_predictions(labels: Tensor, predicted: Tensor, probabilities: Tensor) -> list[Prediction]:
    """The predictions for B images.

    Args:
        labels: ``(B,)`` int64, -1 for an unknown label, or ``(B, K)`` bool, or float with NaN where unknown.
        predicted: as from :func:`protometry.lightning_modules.contract.predicted_classes`.
        probabilities: as from :func:`of_predicted`.

    Example:
        >>> import torch
        >>> as_predictions(torch.tensor([1]), torch.tensor([0]), torch.tensor([0.75]))
        [Prediction(label=(1,), classes=(0,), probabilities=(0.75,), unknown=())]
    """
    predictions = []
    for label, classes, values in zip(labels.cpu(), predicted.cpu(), probabilities.cpu(), strict=True):
        chosen = _classes(classes)
        shares = values[list(chosen)].tolist() if values.ndim else [values.item()] * len(chosen)
        unknown = _classes(label.isnan()) if label.ndim else ()
        nothing = not label.ndim or len(unknown) == len(label)  # is known of the image
        own = _classes(label == 1 if label.ndim else label) or (None if nothing else ())
        predictions.append(Prediction(own, chosen, tuple(shares), unknown))
    return predictions


def _classes(value: Tensor) -> tuple[int, ...]:
    """Those of ``(K,)`` bool, or the one of a number unless it is -1."""
    if value.ndim:
        return tuple(value.nonzero().flatten().tolist())
    return (int(value),) if value >= 0 else ()
