"""All pictures that an evaluation leaves in its folder, from what it found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from PIL import Image
from torch import Tensor

from explanations import Explainer
from explanations.views import png
from reports.explained_model import ExplainedModel
from reports.pictures.class_representation import class_pictures
from reports.pictures.concepts import NamedUnits, concept_pictures
from reports.pictures.funnybirds.part_pictures import funnybirds_pictures
from reports.pictures.intervention import intervention_pictures
from run_folder.atomic import write_whole


class Found(Protocol):
    """What an evaluation found.

    Attributes:
        metrics: by key, as in ``metrics.json``.
        items: "units", "classes" or "concepts" -> key -> value of each, NaN where undefined.
    """

    metrics: dict[str, dict[str, Any]]
    items: dict[str, dict[str, list[float]]]


def evaluation_pictures(
    subject: ExplainedModel,
    evaluation: Found,
    dataset: Any,
    named: tuple[Tensor, Tensor] | None,
    birds: tuple[Any, Explainer] | None,
) -> dict[str, Image.Image]:
    """The pictures of classes, concepts, corrections and parts, each where the evaluation has something to show.

    Args:
        subject: what was evaluated, in evaluation mode.
        evaluation: what was found.
        dataset: the evaluated images.
        named: ``(M,)`` units that stand for concepts, and the concept of each; None without any.
        birds: the images of the FunnyBirds protocol and the explainer of classes that was evaluated; None without them.

    Returns:
        Name -> picture.
    """
    tables, names, device = subject.datamodule.tables, subject.class_names, subject.units.active.device
    weight, metrics = subject.units.weight, evaluation.metrics
    pictures = class_pictures(metrics, subject.units, tables, names) | intervention_pictures(metrics)
    units = None
    if named is not None and weight is not None:
        units = NamedUnits(*(tensor.to(device) for tensor in (*named, weight.detach())))
    pictures |= concept_pictures(evaluation.items, subject.model, dataset, units, tables, names)
    if birds is not None:
        images, explainer = birds
        pictures |= funnybirds_pictures(metrics, explainer, subject.model, images, tables, names, device)
    return pictures


def write_pictures(pictures: Mapping[str, Image.Image], folder: Path) -> None:
    """Write pictures as PNG files.

    Args:
        pictures: by the names of the files.
        folder: of the evaluation.
    """
    for name, picture in pictures.items():
        write_whole(folder / f"{name}.png", png(picture))
