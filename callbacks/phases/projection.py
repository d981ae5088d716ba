"""Projection of units onto the nearest latent patches of training images they may stand for, exact over processes.

Source: Chen et al. 2019 (ProtoPNet), projection of prototypes. The order on ties is (distance, sample key, cell), so
that the result does not depend on the order of the images, the batch size or the number of processes. What a process
sends is U·(D + 4) numbers, whatever the number of images, and eight times as many for distinct patches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, distributed, nn

from protometry.callbacks.forward.evaluation_mode import evaluation_mode
from protometry.callbacks.phases.action_words import listed
from protometry.callbacks.trainer_parts import datamodule_of, model_of, wrong_model
from protometry.datamodules.sample import sample_key
from protometry.lightning_modules.contract import Projectable, SourceTable
from protometry.metrics.primitives.truth import truth_of
from protometry.run_folder.command_line.processes import add_up
from protometry.run_folder.command_line.progress import track

LARGEST = torch.iinfo(torch.int64).max
CANDIDATES = 8  # images whose nearest patches are kept for each unit, if units share no image


@runtime_checkable
class MatchesParts(Projectable, Protocol):
    """A projectable model whose units have P parts of D channels, each projected onto a cell of its own."""

    def part_cells(self, latent: Tensor, units: Tensor | None = None) -> Tensor:
        """``(B, U, P)`` int64, the cells of the parts of every unit, or of n ``units`` (B, n) per image."""
        ...


@dataclass
class NearestPatches:
    """The nearest patches of every unit so far, from R images, the nearest first; without R the patch of one image.

    Args:
        distance: ``(R, U)`` float32, inf where there is none.
        sample_key: ``(R, U)`` int64.
        cell: ``(R, U)`` int64, row·w + col.
        label: ``(R, U)`` int64.
        own: ``(R, U)`` bool, the unit may be projected onto the image.
        patch: ``(R, U, D)`` float.
    """

    distance: Tensor
    sample_key: Tensor
    cell: Tensor
    label: Tensor
    own: Tensor
    patch: Tensor

    @classmethod
    def empty(cls, images: int, units: int, channels: int, device: torch.device) -> NearestPatches:
        """Before the first batch."""
        largest = torch.full((images, units), LARGEST, device=device)
        return cls(
            distance=torch.full((images, units), torch.inf, device=device),
            sample_key=largest,
            cell=largest.clone(),
            label=torch.full_like(largest, -1),
            own=torch.zeros_like(largest, dtype=torch.bool),
            patch=torch.zeros(images, units, channels, device=device),
        )

    def update(self, batch: PatchDistances, wanted: Tensor) -> None:
        """Take in the patches of a batch that are ``wanted``, ``(B, U)`` bool."""
        near = batch.near.masked_fill(~wanted, torch.inf)
        unit = torch.arange(near.shape[1], device=near.device)
        candidates = [self]
        for _ in range(min(len(self.distance), len(near))):
            best = near.amin(dim=0)
            row = torch.where(near == best, batch.keys[:, None], LARGEST).argmin(dim=0)
            parts = batch.latent.flatten(2)[row[:, None], :, batch.parts[row, unit]]  # (U, P, D), of P·D if all in one
            parts = parts[..., : self.patch.shape[2] // parts.shape[1]]
            nearest = NearestPatches(
                distance=best,
                sample_key=batch.keys[row].where(torch.isfinite(best), LARGEST),
                cell=batch.cell[row, unit],
                label=batch.labels[row],
                own=batch.allowed[row, unit],
                patch=parts.flatten(1).to(self.patch),
            )
            candidates.append(NearestPatches(**{name: values[None] for name, values in vars(nearest).items()}))
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
        """Keep the first R in the order of (distance, sample key, index in the list), each image once."""
        every = {name: torch.cat([getattr(each, name) for each in candidates]) for name in vars(self)}
        order = every["sample_key"].argsort(dim=0, stable=True)
        keys, distance = every["sample_key"].gather(0, order), every["distance"].gather(0, order)
        distance[1:].masked_fill_(keys[1:] == keys[:-1], torch.inf)
        nearest = distance.argsort(dim=0, stable=True)[: len(self.distance)]
        every["distance"] = every["distance"].scatter(0, order, distance)
        for name, values in every.items():
            setattr(self, name, _at(values, order.gather(0, nearest)))

    def at(self, rank: Tensor) -> NearestPatches:
        """One patch for each unit, by its rank ``(U,)`` int64 in 0..R - 1."""
        return NearestPatches(**{name: _at(values, rank[None])[0] for name, values in vars(self).items()})


def _at(values: Tensor, rank: Tensor) -> Tensor:
    """``(k, U, ...)``, the values ``(n, U, ...)`` at the ranks ``(k, U)``."""
    return values[rank, torch.arange(values.shape[1], device=values.device)]


@torch.no_grad()
def nearest_patches(module: nn.Module, batches: Iterable[dict[str, Any]], device: torch.device) -> NearestPatches:
    """The nearest allowed patch of every unit over all batches of all processes.

    Returns:
        Equal on all processes; ``(U,)`` and ``(U, D)``.
    """
    nearest = patches_of_nearest_images(module, batches, device, images=1)
    return nearest.at(torch.zeros_like(nearest.cell[0]))


@torch.no_grad()
def distinct_patches(
    module: nn.Module, batches: Iterable[dict[str, Any]], device: torch.device
) -> tuple[NearestPatches, Tensor]:
    """The nearest patches of units that share no image, and how far the nearest patches of all images are, ``(U,)``.

    Ours: where several units are nearest to one image, the nearest of them has it (on ties the first), and the others
    take their nearest patch among the other images, until no image is shared. A pass over the images gives every unit
    its nearest ``CANDIDATES``; another one follows if a unit may have none of these. A unit for which no image is left
    has none.
    """
    taken = torch.empty(0, 1, dtype=torch.int64, device=device)
    least: Tensor | None = None
    while True:
        nearest = patches_of_nearest_images(module, batches, device, CANDIDATES, taken=taken)
        least = nearest.distance[0] if least is None else least
        rank = torch.zeros_like(nearest.cell[0])
        while rank.max() < CANDIDATES and (shared := _shared(nearest.at(rank))).any():
            rank += shared
        if rank.max() < CANDIDATES:
            return nearest.at(rank), least
        passed = torch.arange(CANDIDATES, device=device)[:, None] < rank
        taken = torch.cat([taken.expand(-1, len(rank)), nearest.sample_key.where(passed, -1)])


@torch.no_grad()
def patches_of_nearest_images(
    module: nn.Module,
    batches: Iterable[dict[str, Any]],
    device: torch.device,
    images: int,
    own: bool = True,
    taken: Tensor | None = None,
) -> NearestPatches:
    """The nearest patches of every unit from so many images over all processes.

    With ``own``, only active units count, and only images that they may be projected onto; never those ``taken``, their
    ``(n, U)`` sample keys.
    """
    units = model_of(module).units()
    if units.vectors is None:
        raise TypeError(f"Expected a model whose units have vectors, but got {type(module).__name__}.")
    nearest = NearestPatches.empty(images, len(units.active), units.vectors.shape[1], device)
    for batch in patch_distances(module, batches, device, own):
        wanted = batch.allowed & units.active if own else batch.judged
        if taken is not None:
            wanted = wanted & ~(batch.keys[:, None, None] == taken).any(dim=1)
        nearest.update(batch, wanted)
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
    parts: Tensor  # (B, U, P) int64, the cells that the parts of this patch lie in; (B, U, 1) if all are in one
    allowed: Tensor  # (B, U) bool
    judged: Tensor  # (B, U) bool, whether it is known if the unit is allowed: whether the image has its label
    keys: Tensor  # (B,) int64
    labels: Tensor  # (B,) int64


def patch_distances(
    module: nn.Module, batches: Iterable[dict[str, Any]], device: torch.device, own: bool = False
) -> Iterator[PatchDistances]:
    """The distances between the units of a projectable model and the patches of images, batch by batch.

    With ``own``, an image is compared only with the units that may be projected onto it.

    Raises:
        ValueError: for distances that are not finite, with the sample ids of the batch.
    """
    projectable = cast(Projectable, module)
    for batch in track(batches, "Comparing prototypes with images"):
        images, keys, labels = (batch[name].to(device, non_blocking=True) for name in ("image", "sample_key", "label"))
        several = truth_of(batch, "labels").to(device, non_blocking=True) if "labels" in batch else None
        allowed = projectable.allowed(labels if several is None else several)
        judged = allowed | (True if several is None else ~projectable.allowed(several.isnan()))
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
        parts = module.part_cells(latent, units) if isinstance(module, MatchesParts) else cell[:, :, None]
        if units is not None:
            near = near.new_full(allowed.shape, torch.inf).scatter_(1, units, near)
            cell = cell.new_zeros(allowed.shape).scatter_(1, units, cell)
            places = units[:, :, None].expand_as(parts)
            parts = parts.new_zeros(*allowed.shape, parts.shape[2]).scatter_(1, places, parts)
        yield PatchDistances(latent, near, cell, parts, allowed, judged, keys, labels)


@torch.no_grad()
def project(trainer: Trainer, module: LightningModule, distinct: bool = False) -> dict[str, float]:
    """Action ``project``: replace every unit by its nearest patch and remember where it came from.

    Returns:
        moved_mean and moved_max (distance of units to their patches), without_patch, duplicates (units that share a
        patch with an earlier unit), unique, and for single-label data with a validation split accuracy_before and
        accuracy_after. If units share no image, also displaced, those whose nearest image has gone to another unit,
        and farther_mean and farther_max, how much farther their patches are than the nearest ones.
    """
    if not isinstance(module, Projectable):
        raise wrong_model(module, "project", "with prototypes")
    datamodule = datamodule_of(trainer)
    loader: Any = datamodule.projection_dataloader()
    ids = {sample_key(sample_id): sample_id for sample_id in loader.dataset.sample_ids}
    with evaluation_mode(module):
        before = _validation_accuracy(module, datamodule)
        farther: dict[str, float] = {}
        if distinct:
            nearest, least = distinct_patches(module, loader, module.device)
            farther = _displaced(nearest.distance - least)
        else:
            nearest = nearest_patches(module, loader, module.device)
        valid = torch.isfinite(nearest.distance)
        source = source_table(module, nearest, valid, ids)
        module.load_patches(nearest.patch, valid, source)
        after = _validation_accuracy(module, datamodule)
    accuracy = {"accuracy_before": before, "accuracy_after": after}
    return (
        _report(module, nearest, valid, source) | farther | {name: v for name, v in accuracy.items() if v is not None}
    )


def _validation_accuracy(module: LightningModule, datamodule: Any) -> float | None:
    """Accuracy on the validation split over all processes; None without one, or for multilabel data."""
    if not datamodule.has_validation or datamodule.capabilities("val").multi_label is True:
        return None
    counts = torch.zeros(2, dtype=torch.int64, device=module.device)
    for batch in track(datamodule.val_dataloader(), "Looking at validation images"):
        images, labels = (batch[name].to(module.device, non_blocking=True) for name in ("image", "label"))
        logits = model_of(module)(images).logits
        counts[0] += (logits.argmax(dim=1) == labels).sum()
        counts[1] += len(labels)
    add_up(counts)
    return float(counts[0] / counts[1])


def source_table(module: LightningModule, nearest: NearestPatches, valid: Tensor, ids: dict[int, str]) -> SourceTable:
    """The sources of the patches, with the sample ids and boxes of their cells."""
    geometry = model_of(module).geometry
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
    units = model_of(module).units()
    active, kind = units.active, f"{units.kind}s"
    missing = (active & ~valid).nonzero().flatten().tolist()
    duplicates = source.duplicates()
    if missing:
        rank_zero_info(f"No training image may stand for {kind} {listed(missing)}: they keep their vectors.")
    if duplicates:
        groups = "; ".join(map(listed, duplicates))
        rank_zero_info(f"Some {kind} became the same patch of the same image: {groups}.")
    moved = nearest.distance[valid]
    shared = sum(len(group) - 1 for group in duplicates)
    return {
        "moved_mean": moved.mean().item() if len(moved) else 0.0,
        "moved_max": moved.max().item() if len(moved) else 0.0,
        "without_patch": float(len(missing)),
        "duplicates": float(shared),
        "unique": float(valid.sum().item() - shared),
    }


def _displaced(farther: Tensor) -> dict[str, float]:
    """Figures of the units that another one keeps from their nearest image, which are named, the farthest first.

    Args:
        farther: ``(U,)``, 0 for units with the nearest patch; NaN or inf for those that have none.
    """
    units = (torch.isfinite(farther) & (farther > 0)).nonzero().flatten()
    units = units[farther[units].argsort(descending=True, stable=True)]
    further = farther[units].tolist()
    if further:
        named = listed([f"{unit} (by {more:.3g})" for unit, more in zip(units.tolist(), further, strict=True)])
        rank_zero_info(
            "Another prototype is nearer to the nearest image of these, and they become a patch that is farther away: "
            f"{named}."
        )
    mean = sum(further) / len(further) if further else 0.0
    return {"displaced": float(len(further)), "farther_mean": mean, "farther_max": max(further, default=0.0)}
