"""Prototypes that start as latent patches of training images: random ones, or far from each other."""

from __future__ import annotations

from typing import Any, cast

import torch
from lightning import LightningModule, Trainer
from torch import Tensor

from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.phases.projection import NearestPatches, source_table
from protometry.callbacks.trainer_parts import datamodule_of, model_of, wrong_model
from protometry.datamodules.sample import sample_key
from protometry.lightning_modules.contract import Projectable

AT_ONCE = 32  # images per forward
IMAGES_PER_CLASS = 20  # whose patches a class chooses from


@torch.no_grad()
def sample_patches(trainer: Trainer, module: LightningModule) -> dict[str, float]:
    """Action ``sample_patches``: every unit becomes one random cell of one random training image.

    Ours, no published reference. Vectors drawn from a distribution lie far from every patch, or equally near to all of
    them, and the nodes of a tree above such prototypes send all images the same way. Drawn with the seed of the data
    module, so that all processes draw the same.

    Returns:
        images, how many different ones were drawn.

    Raises:
        TypeError: if the model has no prototypes.
    """
    if not isinstance(module, Projectable):
        raise wrong_model(module, "sample_patches", "with prototypes")
    datamodule = datamodule_of(trainer)
    dataset = datamodule.dataset("projection")
    units = len(model_of(module).units().active)
    generator = torch.Generator().manual_seed(datamodule.seed)
    rows = torch.randint(len(dataset), (units,), generator=generator)
    position = torch.rand(units, generator=generator)
    latent = _latents(module, dataset, rows.tolist())
    cell = (position * latent.shape[1]).long().to(module.device)
    valid = torch.ones(units, dtype=torch.bool, device=module.device)
    _start(module, dataset, rows, cell, latent[torch.arange(units, device=module.device), cell], valid)
    return {"images": float(len(set(rows.tolist())))}


@torch.no_grad()
def spread_patches(trainer: Trainer, module: LightningModule) -> dict[str, float]:
    """Action ``spread_patches``: units become patches of images of their classes that are far from each other.

    Ours for prototypes; farthest-first traversal is from Gonzalez (1985), *Clustering to minimize the maximum
    intercluster distance*. A score is the similarity of one cell, so that training moves a prototype towards what it
    is near already; where all of a class are near the same part, none finds another. The first patch of a class is the
    one farthest from the mean patch of all classes, each further one is farthest from those chosen for the class. A
    unit of several classes chooses from the images of all of them; a unit without a class stays unchanged. Patches come
    from ``IMAGES_PER_CLASS`` images of each class, chosen by the hashes of their ids. Distances are Euclidean even
    where units are compared by direction: long vectors are then far apart, short ones, as in blank cells, are not. All
    processes compute the same.

    Returns:
        images, how many different ones were chosen.

    Raises:
        TypeError: if the model has no prototypes, or the data are multilabel.
        ValueError: if a class has no training image.
    """
    if not isinstance(module, Projectable):
        raise wrong_model(module, "spread_patches", "with prototypes")
    table = model_of(module).units()
    datamodule = datamodule_of(trainer)
    dataset = datamodule.dataset("projection")
    if datamodule.capabilities("projection").multi_label is True:
        raise TypeError(
            "Expected images of one label each for the action 'spread_patches', but got "
            f"{type(datamodule).__name__}, whose images have several."
        )
    rows, of_class = _images_by_class(dataset, table.owner.shape[1])
    latent = _latents(module, dataset, rows.tolist())
    centre = latent.mean(dim=(0, 1))
    of_patch = of_class.to(centre.device).repeat_interleave(latent.shape[1])
    chosen = farthest_first(latent.flatten(0, 1), of_patch, centre, table.owner)
    image, cell = chosen // latent.shape[1], chosen % latent.shape[1]
    owned = table.owner.any(dim=1)
    _start(module, dataset, rows[image.cpu()], cell, latent[image, cell], owned)
    return {"images": float(len(set(image[owned].tolist())))}


def farthest_first(points: Tensor, groups: Tensor, start: Tensor, allowed: Tensor) -> Tensor:
    """Points that are far from each other: each is the farthest from the nearest of those before it.

    Args:
        points: ``(n, D)`` float.
        groups: ``(n,)`` int64, of G groups.
        start: ``(D,)`` float, the point that the first of a group is farthest from.
        allowed: ``(count, G)`` bool, the groups that each may come from, and in which those after it keep away from it.

    Returns:
        ``(count,)`` int64; the first on ties, 0 where no group is allowed. Points repeat only where all are chosen.

    Example:
        >>> points, groups = torch.tensor([[0.0], [1.0], [4.0], [9.0]]), torch.zeros(4, dtype=torch.int64)
        >>> farthest_first(points, groups, torch.zeros(1), torch.ones(3, 1, dtype=torch.bool)).tolist()
        [3, 0, 2]
    """
    nearest, begun = (points - start).square().sum(dim=1), torch.zeros_like(groups, dtype=torch.bool)
    chosen = torch.zeros(len(allowed), dtype=torch.int64, device=points.device)
    for index in allowed.any(dim=1).nonzero()[:, 0].tolist():
        own = allowed[index][groups].nonzero()[:, 0]
        chosen[index] = far = own[nearest[own].argmax()]
        distance = (points[own] - points[far]).square().sum(dim=1)
        nearest[own] = torch.where(begun[own], torch.minimum(nearest[own], distance), distance)
        begun[own] = True
    return chosen


def _images_by_class(dataset: Any, num_classes: int) -> tuple[Tensor, Tensor]:
    """Rows of at most ``IMAGES_PER_CLASS`` images of each class, those with the least keys, and their classes."""
    labels = torch.from_numpy(dataset.labels)
    keys = torch.tensor([sample_key(name) for name in dataset.sample_ids])
    order = keys.argsort()
    chosen = [order[labels[order] == label][:IMAGES_PER_CLASS] for label in range(num_classes)]
    if empty := [label for label, chosen_rows in enumerate(chosen) if not len(chosen_rows)]:
        raise ValueError(f"Expected a training image of every class, but got none of classes {empty[:5]}.")
    rows = torch.cat(chosen)
    return rows, labels[rows]


def _latents(module: LightningModule, dataset: Any, rows: list[int]) -> Tensor:
    """``(n, h·w, D)`` patches of some images."""
    latents = []
    with evaluation_mode(module):
        for start in range(0, len(rows), AT_ONCE):
            images = torch.stack([dataset[row]["image"] for row in rows[start : start + AT_ONCE]])
            latents.append(cast(Projectable, module).embed(images.to(module.device)).flatten(2).transpose(1, 2))
    return torch.cat(latents)


def _start(module: LightningModule, dataset: Any, rows: Tensor, cell: Tensor, patches: Tensor, valid: Tensor) -> None:
    """Make every valid unit the patch at a cell of an image, with its source."""
    names = [dataset.sample_ids[row] for row in rows.tolist()]
    keys = [sample_key(name) for name in names]
    chosen = NearestPatches(
        distance=torch.zeros(len(rows), device=module.device),
        sample_key=torch.tensor(keys, device=module.device),
        cell=cell,
        label=torch.from_numpy(dataset.labels)[rows].to(module.device),
        own=valid,
        patch=patches,
    )
    source = source_table(module, chosen, valid, dict(zip(keys, names, strict=True)))
    cast(Projectable, module).load_patches(patches, valid, source)
