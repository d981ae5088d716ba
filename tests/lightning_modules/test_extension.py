"""A model that no other file knows: defined here, it passes the contract test and trains by its own plan."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn

from lightning_modules import InterpretableModule
from lightning_modules.contract import ModelOutput, UnitTable
from lightning_modules.phases import Phase, PhasePlan
from tests.lightning_modules import test_contract
from tests.lightning_modules.registry import tiny_birds, tiny_trainer


class Detectors(InterpretableModule):
    """Three nameless detectors, a linear head with bias, one loss term and one action of its own."""

    presets: ClassVar[dict[str, PhasePlan]] = {
        "sketch": PhasePlan(
            (
                Phase("warm", 1, {"concepts": 1e-2}, {"sparsity": 0.1}, bn="eval"),
                Phase(
                    "train",
                    1,
                    {"backbone": 1e-2, "concepts": 1e-2, "head": 1e-2},
                    {"cross_entropy": 1.0, "sparsity": 0.1},
                    on_enter=("reset_head",),
                    selectable=True,
                ),
            )
        )
    }
    actions: ClassVar[tuple[str, ...]] = ("reset_head",)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.detect = nn.Conv2d(self.backbone.out_channels, 3, 1)
        self.linear = nn.Linear(3, self.num_classes)

    def forward(self, images: Tensor) -> ModelOutput:
        latent = self.backbone(images)
        maps = self.detect(latent)
        scores = maps.mean((2, 3))
        return ModelOutput(self.head(scores), scores, maps, latent)

    def head(self, scores: Tensor) -> Tensor:
        return self.linear(scores)

    def units(self) -> UnitTable:
        active = torch.ones(3, dtype=torch.bool)
        return UnitTable(
            "concept", active, torch.ones(3, self.num_classes, dtype=torch.bool), "mean", self.linear.weight
        )

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {
            "backbone": list(self.backbone.parameters()),
            "concepts": list(self.detect.parameters()),
            "head": list(self.linear.parameters()),
        }

    def loss_terms(self):
        return super().loss_terms() | {"sparsity": lambda output, batch: output.scores.float().abs().mean()}

    def reset_head(self, trainer: Any) -> dict[str, float]:
        with torch.no_grad():
            self.linear.bias.fill_(7.0)
        return {"bias": 7.0}


class TestDetectors(test_contract.ContractTest):
    @pytest.fixture
    def build(self):
        return Detectors


def test_it_trains_by_its_own_plan_and_actions():
    torch.manual_seed(0)
    model = Detectors(num_classes=8, image_size=(32, 32))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer = tiny_trainer()
    trainer.fit(model, datamodule=tiny_birds())
    assert trainer.current_epoch == 2
    assert trainer.global_step == 6
    assert torch.isfinite(trainer.callback_metrics["train/sparsity"])
    assert all(not torch.equal(before[name], p) for name, p in model.named_parameters())
    close = torch.testing.assert_close
    close(model.linear.bias, torch.full((8,), 7.0), atol=0.05, rtol=0)  # reset, then three steps of at most 1e-2
