"""The model of ``docs/add_a_model.md``, which no other file knows, passes the contract test."""

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from protometry.lightning_modules import InterpretableModule, check_contract
from tests.lightning_modules import test_contract
from tests.pages import DOCS, blocks


def my_model():
    """The class, from the first code of the page."""
    names = {"__name__": "add_a_model"}
    exec(next(blocks(DOCS / "add_a_model.md", "python"))["text"], names)
    return names["MyModel"]


class TestMyModel(test_contract.ContractTest):
    @pytest.fixture(scope="class")
    def build(self):
        return my_model()


def test_the_page_keeps_the_contract_and_its_training_flags():
    model = my_model()(num_classes=4, image_size=(32, 32))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    check_contract(model.train())
    assert model.backbone.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_what_a_model_lacks_is_said_at_once():
    kind = my_model()

    class Faulty(kind):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.gate = nn.Parameter(torch.ones(()))

        def units(self):
            return replace(super().units(), pool="mean")

        def head(self, scores):
            return self.gate * super().head(scores) if self.training else scores.new_zeros(len(scores), 4)

        def forward(self, images):
            output = super().forward(images)
            return replace(output, logits=output.logits + 1)

    class Headless(InterpretableModule):
        forward = units = kind.units

    with pytest.raises(TypeError, match=r"^Expected Headless to define `head`, but it does not; see docs/add_a_model"):
        Headless(num_classes=4, image_size=(32, 32))
    with pytest.raises(ValueError, match="Expected Faulty to keep the contract") as caught:
        check_contract(Faulty(num_classes=4, image_size=(32, 32)))
    assert re.findall(r"\n  (.*)", str(caught.value)) == [
        "`parameter_groups` leaves out `gate`, which no phase would train; add them to a group.",
        "`units`: `pool` is 'mean', but the scores are the 'max' of the maps.",
        "`head` does not make the logits of `forward` from its scores.",
    ]
