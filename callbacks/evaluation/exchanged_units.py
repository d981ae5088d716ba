"""A model with foreign patches in the place of its prototypes, to see what its decisions owe to their content."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from lightning import LightningModule
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from protometry.callbacks.forward.observer import Images, Observer
from protometry.callbacks.phases.head import head_data
from protometry.callbacks.phases.projection import patches_of_nearest_images
from protometry.callbacks.phases.ranks import broadcast_state
from protometry.callbacks.trainer_parts import model_of
from protometry.explanations import Upsample
from protometry.lightning_modules.contract import FitsHead, InterpretableModel, Projectable, empty_sources
from protometry.lightning_modules.phases import HeadSpec

_CHUNK = 64  # images shown at once


@dataclass(frozen=True)
class Exchange:
    """Two copies of a model whose last layers were fitted alike, which share its backbone.

    Args:
        own: with the prototypes of the model.
        observer: of the copy with foreign patches.
    """

    own: InterpretableModel
    observer: Observer

    def logits(self, images: Images, scores: Tensor) -> tuple[Tensor, Tensor]:
        """``(B, K)`` each: of the copy with foreign patches, and of the other one for the ``scores`` of the model."""
        exchanged = self.observer.see(images).logits
        self.observer.refuse_broken()
        return exchanged, cast(Any, self.own).decide(scores).logits


def not_exchangeable(model: InterpretableModel) -> str | None:
    """Why the units of a model cannot be exchanged, or None."""
    if not isinstance(model, Projectable):
        return "the units of the model are not prototypes that patches can replace"
    if not isinstance(model, FitsHead):
        return "the model has no last layer that could be fitted to other prototypes"
    return None


def exchange_units(module: LightningModule, datamodule: Any, seed: int, chunk: int, foreign: Any = None) -> Exchange:
    """Put a foreign patch in the place of every prototype, and fit the last layer to them, and to its own ones.

    The penalty of both last layers is chosen on images that they have not seen.

    Args:
        module: a model for which :func:`not_exchangeable` says None, in evaluation mode.
        datamodule: of the data that it was trained on.
        seed: of the draw.
        chunk: images per forward.
        foreign: a data module of other photos: each prototype becomes the nearest patch of its training images, or of
            all images where its ``scheme`` is ``test``. By default it becomes a random patch of a random training image
            of the model.
    """
    own, other = (cast(Any, copy.deepcopy(module, {id(module.backbone): module.backbone})) for _ in range(2))
    units, device = len(model_of(module).units().active), module.device
    if foreign is None:
        patches = _random_patches(own, datamodule.shown("projection"), seed)
    else:
        undivided = vars(foreign).get("scheme") == "test"
        photos = foreign.test_dataloader() if undivided else foreign.projection_dataloader()
        nearest = patches_of_nearest_images(own, _without_labels(photos), device, images=1, own=False)
        patches = nearest.at(torch.zeros(units, dtype=torch.int64, device=device)).patch
    other.load_patches(patches, torch.ones(units, dtype=torch.bool, device=device), empty_sources(units))
    for each in (own, other):
        training, validation = head_data(each, datamodule)
        scores = training[0][:, each.units().active.cpu()]
        if (scores != scores[0]).any():  # otherwise all images are classified alike, whatever the last layer
            each.fit_head(training, validation, HeadSpec())
        broadcast_state(each)  # devices may differ in the last bits
    rank_zero_info("Fitted the last layer to the prototypes of the model, and to foreign patches in their place.")
    return Exchange(own, Observer(other, Upsample(), chunk, top_k=1))


@torch.no_grad()
def _random_patches(model: Any, dataset: Any, seed: int) -> Tensor:
    """``(U, P·D)``, alike in every process; the parts of a unit come from one image."""
    units, channels = model.units().vectors.shape
    generator = torch.Generator().manual_seed(seed)
    rows, columns = model.geometry.grid
    images = torch.randint(len(dataset), (units,), generator=generator)
    cells = torch.rand(units, rows * columns, generator=generator).argsort(dim=1).to(model.device)
    patches = []
    for chosen, places in zip(torch.split(images, _CHUNK), torch.split(cells, _CHUNK), strict=True):
        shown = torch.stack([dataset[index]["image"] for index in chosen.tolist()])
        latent = model.embed(shown.to(model.device)).flatten(2)  # (n, D, h·w)
        places = places[:, None, : channels // latent.shape[1]].expand(-1, latent.shape[1], -1)
        patches.append(latent.gather(2, places).transpose(1, 2).flatten(1))
    return torch.cat(patches)


def _without_labels(batches: Any) -> Iterator[dict[str, Any]]:
    """Batches of photos of other classes, with a class that every model has instead of theirs."""
    for batch in batches:
        yield {name: value for name, value in batch.items() if name != "labels"} | {
            "label": torch.zeros_like(batch["label"])
        }
