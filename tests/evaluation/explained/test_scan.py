"""What a report shows a model: the same images in forwards of the same size as the evaluation."""

from dataclasses import replace

import pytest
import torch

from protometry.callbacks import Interpretability
from protometry.evaluation.explained.scan import scan_evaluated
from protometry.lightning_modules import BagNet
from tests.engine_runs import run_engine
from tests.lightning_modules.registry import tiny_birds


class DecidesByForward(BagNet):
    """Decides by how many images a forward takes, as the last bits of any model do."""

    def forward(self, images):
        output = super().forward(images)
        return replace(output, logits=output.logits.roll(len(images).bit_length(), dims=1))


@pytest.mark.parametrize("budget", [None, 0.001])
@pytest.mark.parametrize("batch", [3, 8])
def test_a_report_is_of_its_model_whatever_batches_either_has(budget, batch):
    data, engine = tiny_birds(test_size=16, eval_batch_size=batch), Interpretability(["general"], memory_budget=budget)
    torch.manual_seed(0)
    model = DecidesByForward(backbone={"name": "bagnet9", "width": 16}, num_classes=8, image_size=(32, 32)).eval()
    evaluation = run_engine(engine, model, data, batch_size=5)
    request = {"split": "test", "limit": None, "metrics": evaluation.metrics, "protocol": evaluation.protocol}
    outputs, dataset = scan_evaluated(model, data, request)
    assert outputs.sample_ids == list(dataset.sample_ids)
    entry = evaluation.metrics["general/accuracy"]
    right = {name: float(value) for name, value in zip(outputs.sample_ids, outputs.correct, strict=True)}
    by_key = {int(sample["sample_key"]): right[sample["sample_id"]] for sample in dataset}
    assert by_key == {key: columns["general/accuracy"] for key, columns in evaluation.images.items()}
    request["metrics"] = {"general/accuracy": entry | {"value": (entry["value"] * 16 + 1) / 16}}
    with pytest.raises(ValueError, match="Expected the model of the evaluation, which gets"):
        scan_evaluated(model, data, request)
