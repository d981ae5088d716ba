"""The photos that represent units: what a prototype was projected onto, else the strongest training image."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from protometry.datamodules.photos.cache import cache_folder, recall, remember
from protometry.evaluation.explained.cautions import Neighbours
from protometry.evaluation.explained.scan import Scan, labels_of, samples_of, scan
from protometry.explanations import Explainer, unit_views
from protometry.explanations.unit_view import LEAST_CROP, BoxView, box_views, part_in
from protometry.lightning_modules.contract import InterpretableModel, Projectable, UnitTable
from protometry.run_folder.command_line.messages import counted
from protometry.run_folder.command_line.progress import track

TRAINING_IMAGES = 1000  # searched for the strongest image of a unit
STALE = 1e-3  # largest distance of a prototype from the patch it was projected onto
_CHUNK = 16  # photos explained at once


@dataclass(frozen=True)
class Source:
    """The photo that stands for a unit.

    Args:
        part: in the box, where known.
        stale: whether the prototype has changed since it was projected onto the photo.
    """

    view: BoxView
    sample_id: str
    class_name: str
    part: str | None
    origin: str
    stale: bool = False


def known_parts(units: UnitTable, datamodule: Any) -> list[str]:
    """Names of the parts, to label boxes with; none for units that are means over the image, whose boxes are large."""
    return [] if units.pool == "mean" and units.kind != "class" else list(datamodule.tables.part_names)


class UnitSources:
    """Finds and draws the photos of units, each once.

    Args:
        explainer: makes the maps.
        least_crop: of crops, as :func:`protometry.explanations.unit_view.unit_view` takes it.
    """

    def __init__(
        self, model: InterpretableModel, datamodule: Any, explainer: Explainer, class_names: Sequence[str], size: int,
        least_crop: float = LEAST_CROP,
    ) -> None:  # fmt: skip
        self.model, self.datamodule, self.explainer = model, datamodule, explainer
        self.class_names, self.size, self.least_crop = class_names, size, least_crop
        self.units = model.units()
        self._found: dict[int, Source] = {}

    @property
    def there(self) -> bool:
        """Whether photos can stand for the units: not for classes, nor without the training images."""
        return self.units.kind != "class" and self.datamodule.loading.classes is None

    @cached_property
    def training(self) -> Scan:
        """Up to 1,000 training images, drawn by class."""
        return scan(self.model, self.datamodule, "projection", TRAINING_IMAGES)

    @cached_property
    def neighbours(self) -> Neighbours | None:
        """Up to 1,000 training images, drawn by class; None without them, or if the model has no latent.

        Their embeddings are remembered in the cache folder, for these weights, arguments and images.
        """
        if self.datamodule.loading.classes is not None:
            return None
        remembered = cache_folder() / "embeddings" / f"{_fingerprint(self.model, self.datamodule)}.safetensors"
        if content := recall(remembered):
            return Neighbours(load(content)["embeddings"])
        if self.training.embeddings is None:
            return None
        neighbours = Neighbours(self.training.embeddings)
        remember(remembered, save({"embeddings": neighbours.embeddings}))
        return neighbours

    def of(self, units: Sequence[int]) -> dict[int, Source]:
        """The photos of some units; none where there are no training images."""
        if not self.there:
            return {}
        missing = [unit for unit in dict.fromkeys(units) if unit not in self._found]
        dataset = self.datamodule.shown("projection") if missing else None
        for first in track(range(0, len(missing), _CHUNK), "Drawing the photos that stand for units"):
            self._find(missing[first : first + _CHUNK], dataset)
        return {unit: self._found[unit] for unit in units}

    def draw(self, units: Sequence[int], samples: Sequence[Any], heat: bool = False) -> list[Source]:
        """What units saw of samples, with or without a picture of the map."""
        if not samples:
            return []
        images, keys = (torch.stack([sample[name] for sample in samples]) for name in ("image", "sample_key"))
        views_of: Callable[..., Sequence[Sequence[BoxView]]] = unit_views if heat else box_views
        ids = torch.tensor(units)[:, None]
        views = views_of(self.explainer, self.model, images, ids, self.size, keys, self.least_crop)
        drawn = []
        for (view,), sample in zip(views, samples, strict=True):
            names = ", ".join(self.class_names[label] for label in labels_of(sample)[0])
            part = part_in(view.box, sample, known_parts(self.units, self.datamodule))
            drawn.append(Source(view, sample["sample_id"], names, part, "in"))
        return drawn

    def _find(self, units: Sequence[int], dataset: Any) -> None:
        table = self.units.source
        projected = [table is not None and bool(table.found[unit]) for unit in units]
        ids = []
        for unit, is_projected in zip(units, projected, strict=True):
            if is_projected and table is not None:
                ids.append(table.sample_id[unit])
            else:
                ids.append(self.training.sample_ids[self.training.strongest(unit, 1)[0]])
        samples = samples_of(dataset, ids)
        images = torch.stack([sample["image"] for sample in samples]).to(self.units.active.device)
        distances = self._distances(images) if any(projected) else None
        for index, (unit, source) in enumerate(zip(units, self.draw(units, samples, heat=True), strict=True)):
            origin = "projected onto"
            if not projected[index]:
                origin = f"strongest of {counted(len(self.training.sample_ids), 'training image')}"
            stale = projected[index] and distances is not None and not float(distances[index, unit]) <= STALE
            self._found[unit] = replace(source, origin=origin, stale=stale)

    @torch.no_grad()
    def _distances(self, images: Tensor) -> Tensor | None:
        """``(B, U)`` smallest distance of every prototype to a cell of the images."""
        if not isinstance(self.model, Projectable):
            return None
        return self.model.distance_maps(self.model.embed(images)).amin(dim=(2, 3))


def _fingerprint(model: Any, datamodule: Any) -> str:
    """Of everything that decides what a model makes of its training images."""
    settings = [sorted(part.hparams.items(), key=str) for part in (model, datamodule)]
    digest = hashlib.sha256(repr([type(model), *settings, datamodule.dataset("projection").contents]).encode())
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
