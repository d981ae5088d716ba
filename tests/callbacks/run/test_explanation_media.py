"""What is shown of an image while a model is trained."""

import pytest
import torch

from protometry.callbacks.run.explanation_media import evidence
from protometry.explanations.decision import decide
from tests.lightning_modules.registry import MODELS


@pytest.mark.parametrize("name", ["ProtoPNet", "ProtoPool", "ConceptBottleneck"])
def test_the_units_are_those_above_the_mean_over_classes(name):
    torch.manual_seed(5)
    model, image = MODELS[name](num_classes=4, image_size=(32, 32)).eval(), torch.rand(3, 32, 32)
    result = evidence(model, image, top_k=3)
    with torch.no_grad():
        output = model(image[None])
    every = decide(model, output, output.logits.argmax(dim=1), most=3).contributions[0]
    assert result.contributions == pytest.approx(every.topk(3).values.tolist(), rel=1e-4)
    assert result.contributions == pytest.approx(every[result.units].tolist(), rel=1e-4)
    result.contributions[:] = [3.0, 2.0, 2.5]
    assert result.by_place([0, 1, 1]) == [[1, 2], [0]]  # 4.5 at the second place
    assert result.by_place([0, 0, -1]) == [[0, 1], [2]]
