"""Which earlier results answer a request: the requested memory budget decides, whatever the device."""

from pathlib import Path

import pytest

from protometry.callbacks import Interpretability
from protometry.evaluation.request import Request
from protometry.evaluation.trained_model import TrainedModel


@pytest.mark.parametrize(
    ("asked", "earlier", "same"),
    [
        (None, {"memory_budget": 1.0}, True),  # from before the device was recorded
        (None, {"memory_budget": 4.0}, False),
        (None, {"memory_budget": 0.68, "device": "cpu"}, True),
        (None, {"memory_budget": 8.0, "device": "cuda"}, True),
        (None, {"memory_budget": 8.0, "device": "cpu"}, False),
        (4.0, {"memory_budget": 4.0, "device": "cuda"}, True),
        (4.0, {"memory_budget": 8.0, "device": "cuda"}, False),
    ],
)
def test_the_default_budget_is_that_of_the_device(asked, earlier, same):
    engine = Interpretability(memory_budget=asked)
    trained = TrainedModel(Path("run/checkpoints/last.ckpt"))
    vars(trained)["checkpoint"] = {"global_step": 3}
    request = Request(trained, engine)
    result = request.identity | {"protocol": engine.settings | earlier}
    assert request.is_done(result) == same
