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
from protometry.metrics.functional import (
    controlled_synthetic_data_check,
    covered_parts,
    important_parts,
    minimal_sufficient_sets,
    part_dilation,
    part_importance,
    part_thresholds,
    single_deletion,
)


@dataclass(frozen=True)
class Explained:
    """One explanation of the label of an image, for N parts and T thresholds.

    Args:
        map: ``(H, W)`` float, signed.
        importance: ``(N,)`` float64.
        important: ``(T, N)`` bool, P_t.
        csdc: ``(T,)`` float64, as if the prediction were right; NaN for a class without a sufficient set.
        single_deletion: of the image; NaN where it is undefined.
    """

    map: Tensor
    importance: Tensor
    important: Tensor
    csdc: Tensor
    single_deletion: float


@dataclass(frozen=True)
class Bird:
    """One image.

    Args:
        image: ``(3, H, W)`` float in [0, 1].
        drops: ``(N,)`` float, by how much the logit of the label falls without each part.
        sets: ``(Q, N)`` bool, the minimal sufficient sets of the label.
    """

    name: str
    image: Tensor
    label: int
    prediction: int
    drops: Tensor
    sets: Tensor
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
    table = torch.tensor([[parts[name] for name in dataset.parts] for parts in dataset.classes])
    sets = minimal_sufficient_sets(table)
    # one further each time, as classes may alternate
    chosen = sorted({(index * len(dataset) // number + index) % len(dataset) for index in range(number)})
    return [_read(model, dataset, i, codes, explainers, sets) for i in chosen]


def _read(
    model: InterpretableModel,
    dataset: Any,
    i: int,
    codes: Mapping[str, Sequence[int]],
    explainers: Mapping[str, Explainer],
    sets: Tensor,
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
        title: _explain(model, explainer, images[:1], label, (masks, part, drops, sets))
        for title, explainer in explainers.items()
    }
    own = sets[label][sets[label].any(dim=1)]
    return Bird(dataset.sample_id(i), images[0].cpu(), label, int(logits[0].argmax()), drops, own, explained)


def _explain(
    model: InterpretableModel,
    explainer: Explainer,
    image: Tensor,
    label: int,
    facts: tuple[Tensor, Tensor, Tensor, Tensor],
) -> Explained:
    """The explanation of a label, read as the protocol does: boxes by coverage, all others by share."""
    masks, part, drops, sets = facts
    ids, thresholds, parts = torch.tensor([[label]], device=image.device), part_thresholds(), len(drops)
    maps = explainer.attribute(model, image, Targets("class", ids), sample_ids=torch.tensor([0]))[:, 0].detach().cpu()
    if isinstance(explainer, BoxMaps):
        importance = part_importance(maps, masks, part, parts, dilation=1)
        region = explainer.region(model, model(image), ids)[:, 0].cpu()
        important = covered_parts(region, masks, part, thresholds, parts, explainer.coverage)
    else:
        importance = part_importance(maps, masks, part, parts, part_dilation(maps.shape[1]))
        important = important_parts(importance, maps.double().sum(dim=(1, 2)), thresholds)
    labels = torch.tensor([label])
    csdc = controlled_synthetic_data_check(important, labels, labels, sets)[0]
    return Explained(maps[0], importance[0], important[0], csdc, float(single_deletion(importance, drops[None])))
