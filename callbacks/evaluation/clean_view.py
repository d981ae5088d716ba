"""The view of the clean image: fields that metrics read by name, each computed once per batch and only if read.

Fields have the names and shapes of the ``update`` arguments in ``metrics``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from protometry.callbacks.evaluation.exchanged_units import Exchange
from protometry.callbacks.forward.observer import Images, Observer, Outputs
from protometry.explanations import Explainer
from protometry.explanations.decision import Decision, decide
from protometry.lightning_modules.contract import InterpretableModel, Intervenable, ModelOutput
from protometry.metrics.facts import Facts
from protometry.metrics.functional import (
    cell_boxes,
    clip_saliency,
    gather_units,
    patch_boxes,
    peak_cells,
    peak_locations,
    random_cells,
)
from protometry.metrics.primitives.truth import truth_of
from protometry.metrics.primitives.upsample import Lattice

RANDOM_PEAK_SEED = 5 << 40  # a use of noise that must not repeat the draws of others

_ALL_MAPS = ("owned_peaks", "unit_boxes", "unit_maps", "concept_maps")  # fields that need the maps of all units
_EXPLAINED = ("completeness", "deletion", "insertion")  # views that are made from the saliency
_DECISION = ("contributions", "shown")  # those that need them where units are classes


class ViewProtocol(Protocol):
    """A protocol with a view of its own, and what metrics, explanations and results need from it.

    Attributes:
        view: its name, by which metrics ask for it.
        of_classes: fields that need explanations of classes.
        explainer: makes them.
    """

    view: str
    of_classes: frozenset[str]
    explainer: Explainer

    def facts(self, num_classes: int) -> dict[str, Any]:
        """Fields of :class:`protometry.metrics.facts.Facts`."""

    def classes(self, fields: frozenset[str], labels: Tensor, predictions: Tensor) -> Tensor:
        """``(B, c)`` int64, the classes to explain for the fields that are read, -1 for none."""

    def protocol_entries(self, height: int) -> dict[str, Any]:
        """What a result says of its explanations, at this height of the images."""

    def views(self, clean: Clean) -> list[View]:
        """The views of a batch."""

    def chosen(self, metrics: Iterable[object]) -> int | None:
        """Which of several values of an image counts; every process has to call it."""


@dataclass(frozen=True)
class Setting:
    """What a pass knows, what its metrics read, and the settings of the engine.

    Args:
        reads: name of a view and of a field in it, of everything that some metric reads.
        noise: standard deviation of the completeness noise, in [0, 1] units (``quanproto``: in normalised units).
        exchange: copies of the model with foreign patches and with its own prototypes, if some metric reads them.
        sparse_heads: of each field that is read, the weights ``(T, K, U)`` and biases ``(T, K)`` of its heads.
        directions: ``(2, L, D)`` of concepts and of random ones, if they are read.
        write_maps: the maps of all units are wanted, too.
    """

    facts: Facts
    reads: frozenset[tuple[str, str]] = frozenset()
    seed: int = 0
    noise: float = 0.05
    attack_steps: int = 40
    protocol: ViewProtocol | None = None
    exchange: Exchange | None = None
    sparse_heads: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    directions: Tensor | None = None
    write_maps: bool = False

    @cached_property
    def fields(self) -> frozenset[str]:
        """Names of the fields that are read, in whatever view."""
        return frozenset(name for _, name in self.reads)

    @cached_property
    def explain(self) -> bool:
        """Whether ``saliency`` is read."""
        return "saliency" in self.fields or any(view in _EXPLAINED for view, _ in self.reads)

    @property
    def keep_maps(self) -> bool:
        """Whether maps other than the top units' are read."""
        needing = (*_ALL_MAPS, *_DECISION) if self.facts.units.kind == "class" else _ALL_MAPS
        return self.write_maps or not self.fields.isdisjoint(needing)

    @property
    def explain_classes(self) -> bool:
        """Whether explanations of classes are read."""
        return self.protocol is not None and not self.fields.isdisjoint(self.protocol.of_classes)

    @cached_property
    def owned(self) -> Tensor:
        """``(K, M)`` int64, the active units of each class, padded with -1."""
        return owned_units(self.facts.units.owner, self.facts.active)

    @cached_property
    def named(self) -> Tensor:
        """``(M,)`` int64, the units that stand for a concept."""
        return self.facts.named

    @cached_property
    def concepts(self) -> Tensor | None:
        """``(M,)`` int64, the concept of each."""
        return None if self.facts.unit_concepts is None else self.facts.unit_concepts[self.named]

    @cached_property
    def groups(self) -> tuple[tuple[Tensor, int], tuple[Tensor, int]]:
        """The groups in which units are corrected, ``(U,)`` int64, and their number: by question, and one by one."""
        return self.facts.unit_groups(), self.facts.unit_groups(single=True)


class Clean:
    """Fields of the clean image.

    Args:
        outputs: what the model saw, if it has been shown the images already.
    """

    def __init__(
        self, batch: dict[str, Any], observer: Observer, setting: Setting, outputs: Outputs | None = None
    ) -> None:
        self.batch = batch
        self.observer = observer
        self.setting = setting
        self.model: InterpretableModel = observer.model
        self.images = Images(batch["image"], batch["sample_key"], batch["sample_id"])
        self.image_size: tuple[int, int] = (batch["image"].shape[2], batch["image"].shape[3])
        protocol = setting.protocol if setting.explain_classes else None
        self.outputs = outputs or observer.see(
            self.images,
            explain=setting.explain,
            keep_maps=setting.keep_maps,
            classes=None
            if protocol is None
            else lambda rows, predictions: protocol.classes(setting.fields, self.labels[rows], predictions),
        )
        self.logits, self.scores, self.latent = self.outputs.logits, self.outputs.scores, self.outputs.latent
        self.unit_ids, self.maps, self.saliency = self.outputs.unit_ids, self.outputs.maps, self.outputs.saliency
        self.sample_ids = self.images.keys
        self.valid = None

    def part(self, rows: list[int]) -> Clean:
        """The fields of some of the images."""
        chosen = torch.tensor(rows, device=self.logits.device)
        batch = {
            name: value[chosen] if isinstance(value, Tensor) else [value[row] for row in rows]
            for name, value in self.batch.items()
        }
        seen: dict[str, Any] = {
            name: None if value is None else value[chosen] for name, value in vars(self.outputs).items()
        }
        return Clean(batch, self.observer, self.setting, Outputs(**seen))

    @cached_property
    def lattice(self) -> Lattice | None:
        """Start and jump of rows and of columns of cells; None where cells fill the image exactly."""
        return self.model.geometry.lattice

    @cached_property
    def labels(self) -> Tensor:
        """``(B,)`` int64, or for multilabel data ``(B, K)`` as from :func:`.truth_of`."""
        if "labels" in self.batch:
            return truth_of(self.batch, "labels")
        labels: Tensor = self.batch["label"]
        return labels

    @cached_property
    def abstained(self) -> Tensor | None:
        """``(B,)`` bool, all classes have the same logit; None for a model that always decides."""
        return (self.logits == self.logits[:, :1]).all(dim=1) if self.setting.facts.abstains else None

    @cached_property
    def probabilities(self) -> Tensor:
        """``(B, K)`` float, of the classes."""
        return self.model.probabilities(self.logits)

    @cached_property
    def unit_logits(self) -> Tensor:
        """``(B, K)`` float, what the units contribute to the logits, without bias."""
        return self.model.head(self.scores) - self.model.head(torch.zeros_like(self.scores[:1]))

    @cached_property
    def residual(self) -> Tensor:
        """``(B, K)`` float, what they do not."""
        return self.logits - self.model.head(self.scores)

    @property
    def contributions(self) -> Tensor:
        """``(B, E)`` float64, for the class with the largest logit; see ``explanations.decision.Decision``."""
        return self._decision.contributions

    @property
    def shown(self) -> Tensor:
        """``(B, E)`` bool, which of them an explanation shows."""
        return self._decision.shown

    @cached_property
    def object_masks(self) -> Tensor:
        """``(B, H, W)`` bool."""
        return self._from_batch("object_mask")

    @cached_property
    def part_locations(self) -> Tensor:
        """``(B, N, 2)`` float pixels."""
        return self._from_batch("part_points")

    @cached_property
    def part_visible(self) -> Tensor:
        """``(B, N)`` bool."""
        return self._from_batch("part_visible")

    @cached_property
    def concept_labels(self) -> Tensor:
        """``(B, L)`` as from :func:`.truth_of`."""
        return truth_of(self.batch, "concepts")

    @cached_property
    def concept_probabilities(self) -> Tensor:
        """``(B, U)`` float, of a model whose concepts can be corrected."""
        return cast(Intervenable, self.model).concept_probabilities(self.scores)

    @cached_property
    def clipped_saliency(self) -> Tensor:
        """``(B, k, H, W)`` float, clipped once for all metrics that read regions."""
        return clip_saliency(self._saliency)

    @cached_property
    def owned_ids(self) -> Tensor:
        """``(B, M)`` int64, the active units of the image's class, padded with -1."""
        return self.setting.owned[self.labels]

    @cached_property
    def owned_peaks(self) -> Tensor:
        """``(B, M, 2)`` int64 pixels, peaks of the bicubic maps of the owned units."""
        return self.peaks_of(self.unit_maps)

    @property
    def unit_maps(self) -> Tensor:
        """``(B, U, h, w)`` float, maps of all units."""
        assert self.outputs.all_maps is not None
        return self.outputs.all_maps

    @cached_property
    def unit_boxes(self) -> Tensor:
        """``(B, U, 4)`` int64, the patch of every unit's peak cell; 32 pixels a side at 224."""
        return self._patches(peak_cells(self.unit_maps))

    @cached_property
    def random_peaks(self) -> Tensor:
        """``(B, M, 2)`` int64 pixels, for each of the owned units the middle of a cell that is drawn at random."""
        return self.random_peaks_of(0)

    @cached_property
    def random_boxes(self) -> Tensor:
        """``(B, U, 4)`` int64, as ``unit_boxes``, of a cell that is drawn at random for each unit."""
        units = torch.arange(self.scores.shape[1], device=self.scores.device).expand(len(self.scores), -1)
        return self._patches(self._random_cells(units, 0))

    def random_peaks_of(self, draw: int) -> Tensor:
        """``(B, M, 2)`` of the owned units, other ones in each draw."""
        boxes = cell_boxes(self._random_cells(self.owned_ids, draw), self._grid, self.image_size, self.lattice)
        return (boxes[..., :2] + boxes[..., 2:]) // 2

    def peaks_of(self, maps: Tensor) -> Tensor:
        """``(B, M, 2)`` peaks of the owned units in ``(B, U, h, w)`` maps; (0, 0) in empty slots."""
        return peak_locations(gather_units(maps, self.owned_ids), self.image_size, lattice=self.lattice)

    @property
    def _grid(self) -> tuple[int, int]:
        return self.maps.shape[2], self.maps.shape[3]

    def _patches(self, cells: Tensor) -> Tensor:
        return patch_boxes(cells, self._grid, self.image_size, max(1, scaled(32, self.image_size)), self.lattice)

    def _random_cells(self, units: Tensor, draw: int) -> Tensor:
        seed = self.setting.seed + RANDOM_PEAK_SEED + (draw << 32)  # seeds of users are below
        return random_cells(self.sample_ids, units, self._grid, seed)

    def _from_batch(self, name: str) -> Tensor:
        field: Tensor = self.batch[name]
        return field

    @cached_property
    def _decision(self) -> Decision:
        maps = self.maps if self.outputs.all_maps is None else self.outputs.all_maps
        context = self.outputs.context
        output = ModelOutput(self.logits, self.scores, maps, None, {} if context is None else {"context": context})
        return decide(
            self.model, output, self.logits.argmax(dim=1), self.observer.top_k, self.setting.facts.multi_label
        )

    @property
    def _saliency(self) -> Tensor:
        assert self.saliency is not None
        return self.saliency


class View:
    """A view that falls back to the clean one for every field it does not define."""

    def __init__(self, clean: Clean) -> None:
        self.clean = clean

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self), name):  # its property raised this; the clean field would hide it
            raise AttributeError(f"Expected {type(self).__name__}.{name} to be computed, but it failed.")
        return getattr(self.clean, name)


def owned_units(owner: Tensor, active: Tensor) -> Tensor:
    """``(K, M)`` int64, the active units of every class in ascending order, padded with -1."""
    owned = (owner & active[:, None]).T
    counts = owned.sum(dim=1)
    ids = owned.int().argsort(dim=1, descending=True, stable=True)[:, : int(counts.max())]
    return ids.masked_fill(torch.arange(ids.shape[1], device=ids.device) >= counts[:, None], -1)


def scaled(pixels: int, image_size: tuple[int, int]) -> int:
    """A length that papers give at 224 pixels, at this height."""
    return round(pixels * image_size[0] / 224)
