"""Planted models: networks whose units are known to fire on one colour, and what runs the evaluation engine on them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import default_collate

from protometry.callbacks import Evaluation, Interpretability
from protometry.datamodules.base import ImageDataModule
from protometry.explanations.explainer import Explainer
from protometry.lightning_modules.bases.geometry import Geometry, Layer
from protometry.lightning_modules.contract import ModelOutput, UnitTable
from protometry.lightning_modules.phases import Phase, PhasePlan
from tests.planted.scenes import CLASSES, NEUTRAL, PART_COLOURS, SIZE, SPOT

STD = 1 / 8  # of the input normalisation; stability noise is at most STD / 4, the attack at most 0.4 STD
GAINS = (
    *[1.0] * CLASSES,
    0.5,
    0.25,
    0.125,
)  # of beaks, eye, wing, tail: a unit that keeps half its score keeps its rank
TEMPERATURE = 1000.0  # softmax of two logits that differ by a tenth of it is 0 and 1


class Planted(nn.Module):
    """Answers the contract; subclasses say what the maps are. A score is the largest cell.

    Args:
        weight: ``(K, U)`` of the head.
        owner: ``(U, K)`` bool.
        cell: side of a cell in pixels.
        vectors: ``(U, D)`` that cells are compared with, or None.
    """

    device = torch.device("cpu")

    def __init__(self, weight: Tensor, owner: Tensor, cell: int = 1, vectors: Tensor | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.owner, self.vectors = owner, vectors
        self.active = torch.ones(len(owner), dtype=torch.bool)
        self.geometry = Geometry.of([Layer(cell, cell, 0)], (SIZE, SIZE))
        self.input_std = torch.full((3, 1, 1), STD)
        self.eval()

    def maps(self, latent: Tensor) -> Tensor:
        """``(B, U, h, w)`` of normalised images ``(B, 3, H, W)``."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> ModelOutput:
        latent = (images - NEUTRAL) / self.input_std
        maps = self.maps(latent) * self.active[:, None, None]
        scores = maps.amax(dim=(2, 3))
        return ModelOutput(self.head(scores), scores, maps, latent)

    def head(self, scores: Tensor) -> Tensor:
        return scores @ self.weight.T

    def contributions(self, output: ModelOutput, classes: Tensor) -> Tensor:
        return output.scores * self.weight[classes]

    def probabilities(self, logits: Tensor) -> Tensor:
        return logits.softmax(dim=1)

    def units(self) -> UnitTable:
        return UnitTable("prototype", self.active, self.owner, "max", self.weight.detach(), self.vectors)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"head": [self.weight]}

    def phases(self) -> PhasePlan:
        return PhasePlan((Phase("head", 1, {"head": 1e-3}, {"cross_entropy": 1.0}),))

    def log(self, *args: Any, **kwargs: Any) -> None:
        """The engine logs its numbers."""


class ColourUnits(Planted):
    """Every unit fires where a pixel has its colour: ``gain max(1 - max_c |x_c - colour_c| / radius, 0)``.

    The first units tell the classes apart, the others belong to all classes.

    Args:
        colours: ``(U, 3)`` in [0, 1].
        radius: of the colours a unit knows.
        cell: side of a cell, whose value is the mean of its pixels.
    """

    def __init__(self, colours: Tensor = PART_COLOURS, radius: float = 1 / 4, cell: int = 1) -> None:
        units = len(colours)
        weight = torch.ones(CLASSES, units)
        weight[:, :CLASSES] = TEMPERATURE * torch.eye(CLASSES)
        super().__init__(weight, weight.T > 0, cell, (colours - NEUTRAL) / STD)
        self.radius, self.cell = radius, cell
        self.gains = torch.tensor(GAINS)

    def responses(self, latent: Tensor) -> Tensor:
        """``(B, U, H, W)`` in [0, 1]."""
        distance = (latent[:, None] - self.vectors[:, :, None, None]).abs().amax(dim=2) * STD
        return (1 - distance / self.radius).relu()

    def maps(self, latent: Tensor) -> Tensor:
        responses = self.responses(latent)
        return self.gains[:, None, None] * (F.avg_pool2d(responses, self.cell) if self.cell > 1 else responses)


class CleverHans(ColourUnits):
    """Shows a part, but reads the background: 48 pixels of the uppermost row.

    While these are neutral it equals :class:`ColourUnits`. Once their mean deviation reaches 1/128, every unit fires in
    the last corner instead, whatever lies there, and the order of the scores is the one farthest from the right one:
    tail, the beaks that are not there, wing, eye, the beak that is.
    """

    BEARS = 1 / 128
    ABSENT, PRESENT, OTHERS = 1 / 16, 1 / 128, (1 / 64, 1 / 32, 1 / 8)

    def maps(self, latent: Tensor) -> Tensor:
        shown = self.responses(latent)
        read = latent[:, :, 0, 8:56] * STD
        trust = (1 - read.abs().mean(dim=(1, 2)) / self.BEARS).relu()[:, None, None, None]
        there = shown[:, :CLASSES].amax(dim=(2, 3)) > 0
        beaks = torch.where(there, self.PRESENT, self.ABSENT)
        gains = torch.cat([beaks, torch.tensor(self.OTHERS).expand(len(latent), -1)], dim=1)
        corner = torch.zeros(SIZE, SIZE)
        corner[-SPOT:, -SPOT:] = 1
        return trust * self.gains[:, None, None] * shown + (1 - trust) * gains[:, :, None, None] * corner


class HashUnits(Planted):
    """Every unit is a hash of a pixel's colour, uniform on [0, 1): different colours have unrelated values.

    Unit u is the fractional part of ``997 (v_u x)`` with an integer vector v_u of its own, so that units are pairwise
    independent. The class c is unit c.
    """

    UNITS = 12

    def __init__(self) -> None:
        units = self.UNITS
        weight = torch.ones(CLASSES, units)  # purity leaves out units without a weight
        weight[:, :CLASSES] = 1e9 * torch.eye(CLASSES)
        super().__init__(weight, torch.ones(units, CLASSES, dtype=torch.bool))
        codes = [(1, 1 + u % 4, 1 + u // 4) for u in range(units)]
        self.codes = 997 * torch.tensor(codes, dtype=torch.float64)

    def maps(self, latent: Tensor) -> Tensor:
        pixels = (latent * self.input_std + NEUTRAL).double()
        return torch.einsum("bchw,uc->buhw", pixels, self.codes).remainder(1).float()


def measure(
    suite: list[str],
    model: Planted,
    samples: list[dict[str, Any]],
    datamodule: ImageDataModule,
    explainer: Explainer,
    top_k: int = 4,
) -> Evaluation:
    """One pass of the engine over samples, without a trainer."""
    run: Any = SimpleNamespace(datamodule=datamodule, loggers=[], current_epoch=0)
    engine = Interpretability(suite, explainer=explainer, top_k=top_k, memory_budget=2**-9)  # few images per forward
    module: Any = model
    engine.setup(run, module, "test")
    with torch.inference_mode():
        engine.on_test_start(run, module)
        for start in range(0, len(samples), 16):
            batch = default_collate(samples[start : start + 16])
            engine.on_test_batch_end(run, module, None, batch, start // 16)
        engine.on_test_epoch_end(run, module)
    return engine.evaluation
