"""Parts that were drawn and cannot be seen."""

import torch

from protometry.metrics import HiddenParts


def test_hidden_parts_are_those_that_were_drawn():
    metric = HiddenParts()
    metric.update(
        torch.tensor([[True, True, False], [True, True, True]]), torch.tensor([[True, False, False]]).repeat(2, 1)
    )
    assert metric.summary()["value"] == 1.5  # one and two
