from __future__ import annotations

import torch

from protometry.lightning_modules import Classifier

K = 8
SIZE = (32, 32)


def picture(batch: int = 2) -> torch.Tensor:
    return torch.rand(batch, 3, *SIZE, generator=torch.Generator().manual_seed(batch))


def test_two_channels_by_hand():
    """Scores are means over cells; of 4·1 - 2·3 + 0.5 = -1.5 the bias 0.5 belongs to no unit."""
    model = Classifier(num_classes=2, image_size=SIZE).eval()
    model.backbone = torch.nn.Conv2d(3, 2, 1)
    model.backbone.forward = lambda images: torch.tensor([[[[3.0, 5.0]], [[2.0, 4.0]]]])
    model.linear = torch.nn.Linear(2, 2)
    with torch.no_grad():
        model.linear.weight.copy_(torch.tensor([[1.0, -2.0], [0.0, 1.0]]))
        model.linear.bias.copy_(torch.tensor([0.5, 0.0]))
    output = model(picture(1))
    assert output.scores.tolist() == [[4.0, 3.0]]
    assert output.logits.tolist() == [[-1.5, 3.0]]
    assert model.contributions(output, torch.tensor([0])).tolist() == [[4.0, -6.0]]
    assert model.units().owner.tolist() == [[True, False], [False, True]]
