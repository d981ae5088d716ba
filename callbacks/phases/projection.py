"""Projection of units onto the nearest latent patches of training images they may stand for, exact over processes.

Source: Chen et al. 2019 (ProtoPNet), projection of prototypes. The order on ties is (distance, sample key, cell), so
that the result does not depend on the order of the images, the batch size or the number of processes. What a process
sends is U·(D + 4) numbers, whatever the number of images, and eight times as many for distinct patches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, distributed, nn

from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.command_line.processes import add_up
from protometry.datamodules.sample import sample_key
from protometry.lightning_modules.contract import InterpretableModel, Projectable, SourceTable

LARGEST = torch.iinfo(torch.int64).max
CANDIDATES = 8  # images whose nearest patches are kept for each unit, if units share no image


@dataclass
class NearestPatches:
    """The nearest patches of every unit so far, from R images, the nearest first; without R the patch of one image.

    Args:
        distance: ``(R, U)`` float32, inf where there is none.
        sample_key: ``(R, U)`` int64.
        cell: ``(R, U)`` int64, row·w + col.
        label: ``(R, U)`` int64.
        patch: ``(R, U, D)`` float.
    """

    distance: Tensor
    sample_key: Tensor
    cell: Tensor
    label: Tensor
    patch: Tensor

    @classmethod
    def empty(cls, images: int, units: int, channels: int, device: torch.device) -> NearestPatches:
        """Nothing seen yet."""
        largest = torch.full((images, units), LARGEST, device=device)
        return cls(
            distance=torch.full((images, units), torch.inf, device=device),
            sample_key=largest,
            cell=largest.clone(),
            label=torch.full_like(largest, -1),
            patch=torch.zeros(images, units, channels, device=device),
        )

    def update(self, near: Tensor, cell: Tensor, latent: Tensor, allowed: Tensor, keys: Tensor, labels: Tensor) -> None:
        """Take in one batch.

        Args:
            near: ``(B, U)`` exact distance of the nearest patch of each image.
            cell: ``(B, U)`` int64, its cell.
            latent: ``(B, D, h, w)``.
            allowed: ``(B, U)`` bool, the unit may be projected onto the image.
            keys: ``(B,)`` int64 sample keys.
            labels: ``(B,)`` int64 classes.
        """
        near = near.masked_fill(~allowed, torch.inf)
        unit = torch.arange(near.shape[1], device=near.device)
        candidates = [self]
        for _ in range(min(len(self.distance), len(near))):
            best = near.amin(dim=0)
            row = torch.where(near == best, keys[:, None], LARGEST).argmin(dim=0)
            key, own = keys[row].where(torch.isfinite(best), LARGEST), cell[row, unit]
            patch = latent.flatten(2)[row, :, own].to(self.patch)
            candidates.append(NearestPatches(*(each[None] for each in (best, key, own, labels[row], patch))))
            near = near.scatter(0, row[None], torch.inf)
        self._keep_nearest(candidates)

    def reduce(self) -> None:
        """Keep the nearest of all processes."""
        if not distributed.is_initialized():
            return
        images, units, channels = self.patch.shape
        shares = [self.empty(images, units, channels, self.patch.device) for _ in range(distributed.get_world_size())]
        for name, own in vars(self).items():
            distributed.all_gather([getattr(share, name) for share in shares], own.contiguous())
        self._keep_nearest(shares)

    def _keep_nearest(self, candidates: list[NearestPatches]) -> None:
        """Keep the first R in the order of (distance, sample key, place in the list)."""
        every = {name: torch.cat([getattr(each, name) for each in candidates]) for name in vars(self)}
        order = every["sample_key"].argsort(dim=0, stable=True)
        order = order.gather(0, every["distance"].gather(0, order).argsort(dim=0, stable=True))[: len(self.distance)]
        for name, values in every.items():
            setattr(self, name, _picked(values, order))

    def of(self, place: Tensor) -> NearestPatches:
        """One patch for each unit.

        Args:
            place: ``(U,)`` int64 in 0..R - 1.
        """
        return NearestPatches(*(_picked(values, place[None])[0] for values in vars(self).values()))


def _picked(values: Tensor, place: Tensor) -> Tensor:
    """``(k, U, ...)``, the values ``(n, U, ...)`` at the places ``(k, U)``."""
    return values[place, torch.arange(values.shape[1], device=values.device)]


@torch.no_grad()
def nearest_patches(module: nn.Module, batches: Iterable[dict[str, Any]], device: torch.device) -> NearestPatches:
    """The nearest allowed patch of every unit over all batches of all processes.

    Args:
        module: a projectable model in evaluation mode.
        batches: images through the evaluation transform, each once over all processes.
        device: where to compute.

    Returns:
        Equal on all processes; ``(U,)`` and ``(U, D)``.
    """
    nearest = _nearest(module, batches, device, images=1)
    return nearest.of(torch.zeros_like(nearest.cell[0]))


@torch.no_grad()
def distinct_patches(module: nn.Module, batches: Iterable[dict[str, Any]], device: torch.device) -> NearestPatches:
    """The nearest patches of units that share no image.

    Ours: where several units are nearest to one image, the nearest of them has it (on ties the first), and the others
    take their nearest patch among the other images, until no image is shared. A pass over the images gives every unit
    its nearest ``CANDIDATES``; another one follows if a unit may have none of these.

    Args:
        module: a projectable model in evaluation mode.
        batches: images as for :func:`nearest_patches`, to be read several times.
        device: where to compute.

    Returns:
        As :func:`nearest_patches`. A unit for which no image is left has none.
    """
    taken = torch.empty(0, 1, dtype=torch.int64, device=device)
    while True:
        nearest = _nearest(module, batches, device, CANDIDATES, taken)
        place = torch.zeros_like(nearest.cell[0])
        while place.max() < CANDIDATES and (shared := _shared(nearest.of(place))).any():
            place += shared
        if place.max() < CANDIDATES:
            return nearest.of(place)
        passed = torch.arange(CANDIDATES, device=device)[:, None] < place
        taken = torch.cat([taken.expand(-1, len(place)), nearest.sample_key.where(passed, -1)])


def _nearest(
    module: nn.Module,
    batches: Iterable[dict[str, Any]],
    device: torch.device,
    images: int,
    taken: Tensor | None = None,
) -> NearestPatches:
    """The nearest patches from so many images, none of them ``(n, U)`` sample keys that are taken."""
    units = cast(InterpretableModel, module).units()
    if units.vectors is None:
        raise TypeError(f"Expected a model whose units have vectors, but got {type(module).__name__}.")
    nearest = NearestPatches.empty(images, len(units.active), units.vectors.shape[1], device)
    for seen in patch_distances(module, batches, device, own=True):
        allowed = seen.allowed & units.active
        if taken is not None:
            allowed &= ~(seen.keys[:, None, None] == taken).any(dim=1)
        nearest.update(seen.near, seen.cell, seen.latent, allowed, seen.keys, seen.labels)
    nearest.reduce()
    return nearest


def _shared(nearest: NearestPatches) -> Tensor:
    """``(U,)`` bool, a nearer unit, or an earlier one as near, has the same image."""
    order = nearest.distance.argsort(stable=True)
    order = order[nearest.sample_key[order].argsort(stable=True)]
    keys = nearest.sample_key[order]
    shared = torch.zeros_like(keys, dtype=torch.bool)
    shared[order[1:]] = keys[1:] == keys[:-1]
    return shared & torch.isfinite(nearest.distance)


@dataclass(frozen=True)
class PatchDistances:
    """Distances between the units and the nearest patches of one batch of images."""

    latent: Tensor  # (B, D, h, w)
    near: Tensor  # (B, U), exact; inf for units that were not compared
    cell: Tensor  # (B, U) int64, of the nearest patch, the first on ties
    allowed: Tensor  # (B, U) bool
    keys: Tensor  # (B,) int64
    labels: Tensor  # (B,) int64


def patch_distances(
    module: nn.Module, batches: Iterable[dict[str, Any]], device: torch.device, own: bool = False
) -> Iterator[PatchDistances]:
    """The distances between the units of a projectable model and the patches of images, batch by batch.

    Args:
        module: a projectable model in evaluation mode.
        batches: of images.
        device: where to compute.
        own: whether to compare an image only with units that may be projected onto it.

    Raises:
        ValueError: for distances that are not finite, with the sample ids of the batch.
    """
    projectable = cast(Projectable, module)
    for batch in batches:
        images, keys, labels = (batch[name].to(device, non_blocking=True) for name in ("image", "sample_key", "label"))
        allowed = projectable.allowed(batch["labels"].to(device, non_blocking=True) if "labels" in batch else labels)
        count = int(allowed.sum(dim=1).max()) if own else allowed.shape[1]
        # the image's own, padded with others where another image has more; None compares all
        units = allowed.byte().topk(count).indices if count < allowed.shape[1] else None
        latent = projectable.embed(images)
        distances = projectable.distance_maps(latent, units)
        if not torch.isfinite(distances).all():
            raise ValueError(
                "Expected finite distances to the prototypes, but got NaN or infinity in the batch of the samples "
                f"{', '.join(batch['sample_id'])}. Training has diverged."
            )
        near, cell = distances.flatten(2).min(dim=2)
        if units is not None:
            near = near.new_full(allowed.shape, torch.inf).scatter_(1, units, near)
            cell = cell.new_zeros(allowed.shape).scatter_(1, units, cell)
        yield PatchDistances(latent, near, cell, allowed, keys, labels)


@torch.no_grad()
def project(trainer: Trainer, module: LightningModule, distinct: bool = False) -> dict[str, float]:
    """Action ``project``: replace every unit by its nearest patch and remember where it came from.

    Args:
        trainer: its data module gives the images and the ids.
        module: a :class:`~protometry.lightning_modules.contract.Projectable`.
        distinct: whether no two units may share an image (action ``project_distinct``).

    Returns:
        moved_mean and moved_max (distance of units to their patches), without_patch, duplicates (units that share a
        patch with an earlier unit), unique, and for single-label data with a validation split accuracy_before and
        accuracy_after.
    """
    if not isinstance(module, Projectable):
        raise TypeError(f"Expected a model with prototypes for the action 'project', but got {type(module).__name__}.")
    datamodule: Any = trainer.datamodule  # type: ignore[attr-defined]
    loader = datamodule.projection_dataloader()
    ids = {sample_key(sample_id): sample_id for sample_id in loader.dataset.sample_ids}
    with evaluation_mode(module):
        before = _validation_accuracy(module, datamodule)
        nearest = (distinct_patches if distinct else nearest_patches)(module, loader, module.device)
        valid = torch.isfinite(nearest.distance)
        source = source_table(module, nearest, valid, ids)
        module.load_patches(nearest.patch, valid, source)
        after = _validation_accuracy(module, datamodule)
    accuracy = {"accuracy_before": before, "accuracy_after": after}
    return _report(module, nearest, valid, source) | {name: v for name, v in accuracy.items() if v is not None}


def _validation_accuracy(module: LightningModule, datamodule: Any) -> float | None:
    """Accuracy on the validation split over all processes; None without one, or for multilabel data."""
    if not datamodule.has_validation or datamodule.capabilities("val").multi_label is True:
        return None
    counts = torch.zeros(2, dtype=torch.int64, device=module.device)
    for batch in datamodule.val_dataloader():
        images, labels = (batch[name].to(module.device, non_blocking=True) for name in ("image", "label"))
        logits = cast(InterpretableModel, module)(images).logits
        counts[0] += (logits.argmax(dim=1) == labels).sum()
        counts[1] += len(labels)
    add_up(counts)
    return float(counts[0] / counts[1])


def source_table(module: LightningModule, nearest: NearestPatches, valid: Tensor, ids: dict[int, str]) -> SourceTable:
    """The sources of the patches, with the sample ids and boxes of their cells.

    Args:
        module: an interpretable model.
        nearest: the patches, one per unit.
        valid: ``(U,)`` bool, the unit has a patch.
        ids: sample id of every sample key.
    """
    geometry = cast(InterpretableModel, module).geometry
    cell = torch.where(valid, nearest.cell, -1)
    row, col = cell // geometry.grid[1], torch.where(valid, cell % geometry.grid[1], -1)
    keys = torch.where(valid, nearest.sample_key, -1)
    boxes = [
        geometry.cell_box(r, c) if r >= 0 else (-1, -1, -1, -1) for r, c in zip(row.tolist(), col.tolist(), strict=True)
    ]
    return SourceTable(
        sample_key=keys,
        sample_id=[ids[key] if key >= 0 else "" for key in keys.tolist()],
        row=row,
        col=col,
        label=nearest.label,
        distance=nearest.distance,
        box=torch.tensor(boxes, dtype=torch.int64, device=cell.device),
    )


def _report(module: LightningModule, nearest: NearestPatches, valid: Tensor, source: SourceTable) -> dict[str, float]:
    active = cast(InterpretableModel, module).units().active
    missing = (active & ~valid).nonzero().flatten().tolist()
    duplicates = source.duplicates()
    if missing:
        rank_zero_info(f"Units without any allowed image keep their vectors: {missing}")
    if duplicates:
        rank_zero_info(f"Units that share one source patch: {duplicates}")
    moved = nearest.distance[valid]
    shared = sum(len(group) - 1 for group in duplicates)
    return {
        "moved_mean": moved.mean().item() if len(moved) else 0.0,
        "moved_max": moved.max().item() if len(moved) else 0.0,
        "without_patch": float(len(missing)),
        "duplicates": float(shared),
        "unique": float(valid.sum().item() - shared),
    }
