"""What the FunnyBirds protocol adds to one pass of an evaluation besides its metrics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from protometry.callbacks.evaluation.clean_view import Clean, View
from protometry.callbacks.evaluation.funnybirds.birds import Birds, find_birds
from protometry.callbacks.evaluation.funnybirds.interface import Interface, part_explainer
from protometry.callbacks.evaluation.funnybirds.part_removal import EXPLAINING, PartRemoval, explained_slots
from protometry.explanations import BoxMaps, Explainer
from protometry.metrics import FunnyBirdsScores
from protometry.metrics.functional import part_dilation


class FunnyBirdsProtocol:
    """Parts are taken away, and explanations say which count: a ``ViewProtocol`` of the clean view.

    Args:
        birds: the evaluated images; None for data whose parts cannot be taken away.
    """

    view = "part_removal"
    of_classes = EXPLAINING

    def __init__(self, interface: Interface, explainer: Explainer, birds: Birds | None) -> None:
        self.explainer, self.birds = part_explainer(interface, explainer), birds

    @classmethod
    def of(cls, interface: Interface, explainer: Explainer, datamodule: Any, split: str) -> FunnyBirdsProtocol:
        """The protocol on a split of an ``ImageDataModule``."""
        return cls(interface, explainer, find_birds(datamodule, split))

    def facts(self, num_classes: int) -> dict[str, Any]:
        """Fields of :class:`protometry.metrics.facts.Facts`."""
        table = None if self.birds is None else self.birds.class_parts
        return {
            "removable_parts": () if self.birds is None else tuple(self.birds.names),
            "class_parts": table if table is not None and len(table) == num_classes else None,
            "part_shares": not isinstance(self.explainer, BoxMaps),
        }

    def classes(self, fields: frozenset[str], labels: Tensor, predictions: Tensor) -> Tensor:
        """``(B, c)`` int64, of the label, its pair (-1 without one) and the prediction those that are read."""
        assert self.birds is not None
        first, second = self.birds.pairs[0].to(labels.device)[labels].unbind(dim=1)
        ids = {"label": labels, "first of pair": first, "second of pair": second, "prediction": predictions}
        return torch.stack([ids[name] for name in explained_slots(fields)], dim=1)

    def protocol_entries(self, height: int) -> dict[str, Any]:
        """Side in pixels of the square that dilates parts before maps are summed; whether weights are foreign."""
        foreign = isinstance(self.explainer, BoxMaps) and self.explainer.variant == "reference"
        return {"dilation": self._dilation(height)} | ({"foreign_weights": True} if foreign else {})

    def views(self, clean: Clean) -> list[View]:
        """The image without some of its parts."""
        assert self.birds is not None
        return [PartRemoval(clean, self.birds, self._dilation(clean.image_size[0]))]

    def chosen(self, metrics: Iterable[object]) -> int | None:
        """The threshold at which scores are reported, over all processes; every process has to call it."""
        scores = next((metric for metric in metrics if isinstance(metric, FunnyBirdsScores)), None)
        return None if scores is None else scores.threshold_index()

    def _dilation(self, height: int) -> int:
        return 1 if isinstance(self.explainer, BoxMaps) else part_dilation(height)
