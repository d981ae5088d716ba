"""Prototypes that start as latent patches of training images: random, far from each other, or recurring ones."""

from __future__ import annotations

from typing import Any, cast

import torch
from lightning import LightningModule, Trainer
from torch import Tensor
from torch.nn import functional as F

from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.phases.projection import NearestPatches, source_table
from protometry.callbacks.phases.pruning import Prunable
from protometry.callbacks.trainer_parts import datamodule_of, model_of, wrong_model
from protometry.datamodules.sample import sample_key
from protometry.lightning_modules.contract import Projectable
from protometry.metrics.primitives.peaks import margin_to_elsewhere, reach
from protometry.run_folder.command_line.progress import track

AT_ONCE = 32  # images per forward
IMAGES_PER_CLASS = 20  # whose patches a class chooses from, if they are to be far from each other
RECURRING_IN = 30  # images of a class in which patches recur
TYPICAL = 0.05  # share of the patches of a class that are typical of it
RECURRING = 0.1  # share of the patches of a class that recur most


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
    dataset = datamodule.shown("projection")
    units = len(model_of(module).units().active)
    generator = torch.Generator().manual_seed(datamodule.seed)
    rows = torch.randint(len(dataset), (units,), generator=generator)
    position = torch.rand(units, generator=generator)
    latent = _latents(module, dataset, rows.tolist())
    cell = (position * latent.shape[1]).long().to(module.device)
    valid = torch.ones(units, dtype=torch.bool, device=module.device)
    _start(module, dataset, rows, cell, latent[torch.arange(units, device=module.device), cell], valid)
    return {"images": float(len(set(rows.tolist())))}


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
    return _spread(trainer, module, "spread_patches")


def typical_patches(trainer: Trainer, module: LightningModule) -> dict[str, float]:
    """Action ``typical_patches``: as :func:`spread_patches`, but only among patches that are typical of their class.

    Ours. Patches that are merely far from each other include what no other image shows. Here a class chooses from the
    share ``TYPICAL`` of its patches with the largest :func:`typicality`.

    Returns:
        images, how many different ones were chosen.

    Raises:
        TypeError: if the model has no prototypes, or the data are multilabel.
        ValueError: if a class has no training image, or there is one class only.
    """
    return _spread(trainer, module, "typical_patches")


@torch.no_grad()
def recurring_patches(trainer: Trainer, module: LightningModule) -> dict[str, float]:
    """Action ``recurring_patches``: units become the patches that recur, at one place, in the images of their class.

    Ours. No part labels are needed to know which patches show a part: such a patch finds exactly one place in every
    image of the class. See :func:`recurring`; classes choose from ``RECURRING_IN`` images. A class with fewer
    such places than units keeps the others unused. All processes compute the same.

    Returns:
        images, how many different ones were chosen, and units, how many are in use.

    Raises:
        TypeError: if the model has no prototypes that belong to one class each and can be pruned, or the data are
            multilabel.
        ValueError: if a class has no training image.
    """
    table, grid = model_of(module).units(), model_of(module).geometry.grid
    owner = table.owner
    if not (isinstance(module, Prunable) and (owner.sum(dim=1) <= 1).all()):
        raise wrong_model(module, "recurring_patches", "with prototypes of one class each")
    _refuse_several_labels(trainer, "recurring_patches")
    dataset = datamodule_of(trainer).shown("projection")
    rows, of_class = _images_by_class(dataset, owner.shape[1], RECURRING_IN)
    patches = torch.zeros_like(cast(Tensor, table.vectors))
    row, cell = (torch.zeros(len(owner), dtype=torch.int64, device=owner.device) for _ in range(2))
    found = torch.zeros_like(owner[:, 0])
    for label in track(range(owner.shape[1]), "Finding recurring patches"):
        of_label = rows[of_class == label]
        latent = _latents(module, dataset, of_label.tolist())
        units = owner[:, label].nonzero()[:, 0]
        chosen = recurring(latent, grid, len(units))
        units = units[: len(chosen)]
        image, cell[units] = chosen // latent.shape[1], chosen % latent.shape[1]
        row[units], patches[units], found[units] = of_label.to(row.device)[image], latent[image, cell[units]], True
    _start(module, dataset, row.cpu(), cell, patches, found)
    module.prune(found)
    return {"images": float(len(set(row[found].tolist()))), "units": float(found.sum())}


def recurring(latent: Tensor, grid: tuple[int, int], most: int) -> Tensor:
    """Patches that are each found at one place in every image of a class, no two at the same place.

    They are ordered by the mean over the other images of :func:`.margin_to_elsewhere` of cosine distances. Of the share
    ``RECURRING`` with the largest, each is taken unless its best cells lie within :func:`.reach` of those of one
    taken before in at least half of the images.

    Args:
        latent: ``(n, c, D)`` float, c patches of each of n images of a class.
        grid: ``(h, w)``, rows and columns of the c cells.
        most: number of patches.

    Returns:
        ``(k,)`` int64 in 0..n·c - 1, at most so many, the best first.

    Example:
        >>> cells = torch.eye(6)[torch.tensor([[0, 5, 5, 5, 5, 1], [0, 5, 5, 5, 5, 2]])]  # alike at the left
        >>> recurring(cells, (1, 6), most=1)
        tensor([0])
    """
    unit = F.normalize(latent, dim=2)
    patches = unit.flatten(0, 1)
    margin = patches.new_zeros(len(unit), len(patches))
    for image, cells in enumerate(unit):
        margin[image] = margin_to_elsewhere((1 - patches @ cells.T).view(-1, *grid))
        margin[image, image * len(cells) : (image + 1) * len(cells)] = 0  # every patch is in its own image
    mean = margin.sum(dim=0) / max(1, len(unit) - 1)
    best = mean.sort(descending=True, stable=True).indices[: max(most, int(RECURRING * len(patches)))]
    peak = (patches[best] @ patches.T).view(-1, *latent.shape[:2]).argmax(dim=2)
    place = torch.stack([peak // grid[1], peak % grid[1]])
    apart = (place[:, :, None] - place[:, None]).abs().amax(dim=0)
    alike = (apart <= reach(grid)).float().mean(dim=2) >= 0.5
    chosen: list[int] = []
    left = torch.ones(len(best), dtype=torch.bool, device=best.device)
    while len(chosen) < most and left.any():
        chosen.append(int(left.byte().argmax()))
        left &= ~alike[chosen[-1]]
    return best[chosen]


def _refuse_several_labels(trainer: Trainer, action: str) -> None:
    datamodule = datamodule_of(trainer)
    if datamodule.capabilities("projection").multi_label is True:
        raise TypeError(
            f"Expected images of one label each for the action {action!r}, but got {type(datamodule).__name__}, whose "
            "images have several."
        )


@torch.no_grad()
def _spread(trainer: Trainer, module: LightningModule, action: str) -> dict[str, float]:
    if not isinstance(module, Projectable):
        raise wrong_model(module, action, "with prototypes")
    table = model_of(module).units()
    _refuse_several_labels(trainer, action)
    dataset = datamodule_of(trainer).shown("projection")
    rows, of_class = _images_by_class(dataset, table.owner.shape[1])
    latent = _latents(module, dataset, rows.tolist())
    of_class = of_class.to(latent.device)
    patches, of_patch = latent.flatten(0, 1), of_class.repeat_interleave(latent.shape[1])
    candidates = torch.arange(len(patches), device=latent.device)
    if action == "typical_patches":
        most = int(table.owner.sum(dim=0).max())
        candidates = most_typical(typicality(latent, of_class).flatten(), of_patch, TYPICAL, most)
    centre = patches.mean(dim=0)
    chosen = candidates[farthest_first(patches[candidates], of_patch[candidates], centre, table.owner)]
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


def typicality(latent: Tensor, labels: Tensor) -> Tensor:
    """How much nearer patches are to the other images of their class than to images of other classes.

    With s(p, x) the largest cosine of patch p and a patch of image x, it is the mean of s(p, x) over the other images x
    of the class minus its mean over as many images of other classes, evenly spaced in the order of the images.

    Args:
        latent: ``(n, c, D)`` float, c patches of each of n images.
        labels: ``(n,)`` int64.

    Returns:
        ``(n, c)`` float, from -2 to 2; without another image of the class, minus the mean over other classes.

    Raises:
        ValueError: if all images are of one class.

    Example:
        >>> patches = torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]], [[0.0, 1.0], [0.0, 2.0]]])
        >>> typicality(patches, torch.tensor([0, 0, 1]))[0]  # cos with the second image: 1 and 0.71; third: 0 and 1
        tensor([ 1.0000, -0.2929])
    """
    unit = F.normalize(latent, dim=2)
    typical = latent.new_empty(latent.shape[:2])
    for label in track(sorted(set(labels.tolist())), "Finding typical patches"):
        own, others = (labels == label).nonzero()[:, 0], (labels != label).nonzero()[:, 0]
        if not len(others):
            raise ValueError(
                "Expected images of at least two classes, because a typical patch is one that other "
                "classes lack, but got one."
            )
        others = others[torch.linspace(0, len(others) - 1, min(len(own), len(others))).long()]
        nearest = torch.stack([(unit[own] @ unit[image].T).amax(dim=2) for image in [*own, *others]])
        nearest[torch.arange(len(own)), torch.arange(len(own))] = 0  # every patch is in its own image
        typical[own] = nearest[: len(own)].sum(dim=0) / max(1, len(own) - 1) - nearest[len(own) :].mean(dim=0)
    return typical


def most_typical(typical: Tensor, labels: Tensor, share: float, least: int = 1) -> Tensor:
    """Indices of the patches of each class with the largest values: a share of them, and at least so many.

    Example:
        >>> most_typical(torch.tensor([0.1, 0.9, 0.5, 0.2, 0.7]), torch.tensor([0, 0, 1, 1, 1]), share=0.7)
        tensor([1, 2, 4])
    """
    kept = []
    for label in sorted(set(labels.tolist())):
        own = (labels == label).nonzero()[:, 0]
        count = min(max(least, int(share * len(own))), len(own))
        kept.append(own[typical[own].topk(count).indices])
    return torch.cat(kept).sort().values


def _images_by_class(dataset: Any, num_classes: int, most: int = IMAGES_PER_CLASS) -> tuple[Tensor, Tensor]:
    """Rows of at most so many images of each class, those with the least keys, and their classes."""
    labels = torch.from_numpy(dataset.labels)
    keys = torch.tensor([sample_key(name) for name in dataset.sample_ids])
    order = keys.argsort()
    chosen = [order[labels[order] == label][:most] for label in range(num_classes)]
    if empty := [label for label, chosen_rows in enumerate(chosen) if not len(chosen_rows)]:
        raise ValueError(f"Expected a training image of every class, but got none of classes {empty[:5]}.")
    rows = torch.cat(chosen)
    return rows, labels[rows]


def _latents(module: LightningModule, dataset: Any, rows: list[int]) -> Tensor:
    """``(n, h·w, D)`` patches of some images."""
    latents = []
    with evaluation_mode(module):
        for start in track(range(0, len(rows), AT_ONCE), "Looking at training images"):
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
