"""The black-box control: backbone, global mean, linear layer. Its units are the channels of the backbone."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from protometry.lightning_modules.bases.card import Card
from protometry.lightning_modules.bases.interpretable import InterpretableModule
from protometry.lightning_modules.contract import ModelOutput, UnitTable
from protometry.lightning_modules.phases import OptimizerSpec, Phase, PhasePlan, SchedulerSpec, one_cycle

_CROSS_ENTROPY = {"cross_entropy": 1.0}


def _sgd(epochs: int, rates: dict[str, float], decay: float, steps: dict[str, float]) -> PhasePlan:
    """One phase of stochastic gradient descent with momentum, whose rates fall in steps."""
    phase = Phase(
        "train",
        epochs,
        rates,
        _CROSS_ENTROPY,
        weight_decay=dict.fromkeys(rates, decay),
        optimizer=OptimizerSpec("SGD", {"momentum": 0.9}),
        scheduler=SchedulerSpec("StepLR", steps),
        selectable=True,
    )
    return PhasePlan((phase,))


class Classifier(InterpretableModule):
    """Plain image classifier.

    Presets: ``sgd`` (the dense recipe of Norrenbrock et al. 2025 without its diversity loss), ``funnybirds`` (Hesse et
        al. 2023, who adjust the rate to the backbone) and ``sketch`` (ours).

    Example:
        >>> model = Classifier(num_classes=4, image_size=(32, 32))
        >>> output = model(torch.rand(2, 3, 32, 32))
        >>> torch.allclose(output.maps.mean((2, 3)), output.scores)
        True
    """

    card = Card(
        name="Black box",
        units="channels of the backbone",
        decision="linear head over means",
        page="classifier.md",
    )
    presets: ClassVar[dict[str, PhasePlan]] = {
        "sgd": _sgd(150, {"backbone": 5e-3, "head": 1e-2}, 5e-4, {"step_size": 30, "gamma": 0.4}),
        "funnybirds": _sgd(120, {"backbone": 0.1, "head": 0.1}, 1e-4, {"step_size": 60, "gamma": 0.1}),
        "sketch": PhasePlan(
            (one_cycle("train", 10, {"backbone": 3e-3, "head": 3e-3}, _CROSS_ENTROPY, selectable=True),)
        ),
    }

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.linear = nn.Linear(self.backbone.out_channels, self.num_classes)

    def forward(self, images: Tensor) -> ModelOutput:
        """Backbone, mean over cells, linear head."""
        latent = self.backbone(images)
        scores = latent.mean(dim=(2, 3))
        return ModelOutput(self.head(scores), scores, latent, latent)

    def head(self, scores: Tensor) -> Tensor:
        """Logits ``(B, K)`` of scores ``(B, U)``."""
        return self.linear(scores)  # type: ignore[no-any-return]

    def units(self) -> UnitTable:
        """Channels of the backbone; a class owns those with a positive weight."""
        weight = self.linear.weight
        active = torch.ones(weight.shape[1], dtype=torch.bool, device=weight.device)
        return UnitTable(kind="feature", active=active, owner=weight.T > 0, pool="mean", weight=weight)
