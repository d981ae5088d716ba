"""What a model and its explanations say about the parts of some birds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from protometry.explanations import BoxMaps, Explainer
from protometry.explanations.explainer import Targets
from protometry.lightning_modules.contract import InterpretableModel
from protometry.metrics.functional import part_dilation, part_importance, single_deletion


@dataclass(frozen=True)
class Explained:
    """One explanation of the label of an image, for N parts.

    Args:
        map: ``(H, W)`` float, signed.
        importance: ``(N,)`` float64.
        single_deletion: of the image; NaN where it is undefined.
    """

    map: Tensor
    importance: Tensor
    single_deletion: float


@dataclass(frozen=True)
class Bird:
    """One image.

    Args:
        image: ``(3, H, W)`` float in [0, 1].
        drops: ``(N,)`` float, by how much the logit of the label falls without each part.
    """

    name: str
    image: Tensor
    label: int
    prediction: int
    drops: Tensor
    explained: dict[str, Explained]


def read_birds(
    model: InterpretableModel,
    dataset: Any,
    codes: Mapping[str, Sequence[int]],
    explainers: Mapping[str, Explainer],
    number: int,
) -> list[Bird]:
    """Show images with and without each part to a model, and explain their labels.

    Args:
        model: in evaluation mode.
        dataset: with the interface ``InterventionDataset``.
        codes: part -> its codes in label maps.
        explainers: title -> explainer of classes that supports the model.
        number: of images, from all over the data set.
    """
    # one further each time, as classes may alternate
    chosen = sorted({(index * len(dataset) // number + index) % len(dataset) for index in range(number)})
    return [_read(model, dataset, i, codes, explainers) for i in chosen]


def _read(
    model: InterpretableModel,
    dataset: Any,
    i: int,
    codes: Mapping[str, Sequence[int]],
    explainers: Mapping[str, Explainer],
) -> Bird:
    names, label = list(dataset.parts), int(dataset.label(i))
    versions = [dataset.intervene(i, drop=[name] if name in dataset.present(i) else []) for name in names]
    pixels = torch.stack([torch.as_tensor(version) for version in [dataset.image(i), *versions]])
    images = pixels.to(model.units().active.device).movedim(-1, 1).float().div(255)
    with torch.no_grad():
        logits = model(images).logits.cpu()
    drops = logits[0, label] - logits[1:, label]
    label_map = torch.as_tensor(dataset.label_map(i))
    wanted = torch.tensor([code for name in names for code in codes[name]])
    masks = (label_map == wanted[:, None, None])[None]
    part = torch.tensor([[j for j, name in enumerate(names) for _ in codes[name]]])
    explained = {
        title: _explain(model, explainer, images[:1], label, (masks, part, drops))
        for title, explainer in explainers.items()
    }
    return Bird(dataset.sample_id(i), images[0].cpu(), label, int(logits[0].argmax()), drops, explained)


def _explain(
    model: InterpretableModel, explainer: Explainer, image: Tensor, label: int, facts: tuple[Tensor, Tensor, Tensor]
) -> Explained:
    """The explanation of a label, read as the protocol does."""
    masks, part, drops = facts
    ids = torch.tensor([[label]], device=image.device)
    maps = explainer.attribute(model, image, Targets("class", ids), sample_ids=torch.tensor([0]))[:, 0].detach().cpu()
    dilation = 1 if isinstance(explainer, BoxMaps) else part_dilation(maps.shape[1])
    importance = part_importance(maps, masks, part, len(drops), dilation)
    return Explained(maps[0], importance[0], float(single_deletion(importance, drops[None])))
