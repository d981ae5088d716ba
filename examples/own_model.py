"""A model of your own: one class, trained and measured with what all models use.

python examples/own_model.py
python train.py fit --model examples.own_model.TopCells --config configs/data/sketch_birds.yaml
"""

from typing import Any, ClassVar

import torch
from lightning import Trainer, seed_everything
from torch import Tensor, nn

from protometry.callbacks import Interpretability, PhaseSchedule
from protometry.datamodules import SketchBirds
from protometry.lightning_modules import InterpretableModule
from protometry.lightning_modules.contract import ModelOutput, UnitTable
from protometry.lightning_modules.phases import Phase, PhasePlan


class TopCells(InterpretableModule):
    """Learnt detectors whose mean over the three best cells is the score that a linear layer reads."""

    presets: ClassVar = {
        "joint": PhasePlan(
            (Phase("train", 4, {"backbone": 3e-3, "head": 3e-3}, {"cross_entropy": 1.0, "sparsity": 0.05}),)
        )
    }

    def __init__(self, units: int = 24, preset: str = "joint", **kwargs: Any) -> None:
        super().__init__(preset=preset, **kwargs)
        self.detect = nn.Conv2d(self.backbone.out_channels, units, 1)
        self.linear = nn.Linear(units, self.num_classes)

    def forward(self, images: Tensor) -> ModelOutput:
        """Images in [0, 1] (the backbone normalises) to logits, scores and maps."""
        maps = self.detect(self.backbone(images)).relu()
        scores = maps.flatten(2).topk(3).values.mean(2)
        return ModelOutput(self.head(scores), scores, maps)

    def head(self, scores: Tensor) -> Tensor:
        """Scores to logits."""
        return self.linear(scores)

    def units(self) -> UnitTable:
        """What the units are, and which class they vote for."""
        weight = self.linear.weight
        active = torch.ones(weight.shape[1], dtype=torch.bool, device=weight.device)
        return UnitTable("feature", active, owner=weight.T > 0, pool="max", weight=weight)

    def parameter_groups(self):
        """Parameters by the names that the schedule uses."""
        head = [*self.detect.parameters(), *self.linear.parameters()]
        return {"backbone": list(self.backbone.parameters()), "head": head}

    def loss_terms(self):
        """Losses by the names that the schedule uses."""
        return super().loss_terms() | {"sparsity": lambda output, batch: output.scores.float().abs().mean()}


if __name__ == "__main__":
    seed_everything(0)
    data = SketchBirds("tiny", image_size=64, batch_size=32)
    model = TopCells(num_classes=data.num_classes, image_size=data.image_size, backbone={"name": "sketch"})
    suite = Interpretability(["general/accuracy", "compactness", "continuity", "localisation"])
    options = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    trainer = Trainer(max_epochs=-1, callbacks=[PhaseSchedule(seed=0), suite], **options)
    trainer.fit(model, data)
    (values,) = trainer.test(model, data, verbose=False)
    print(*(f"{key:<40} {value:8.3f}" for key, value in values.items()), sep="\n")
