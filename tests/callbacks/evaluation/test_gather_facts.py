"""The choice of the explainer, and the facts of an evaluation."""

from __future__ import annotations

import pytest
import torch

from protometry.callbacks.evaluation.gather_facts import gather_facts
from protometry.explanations import LRP, PRP, GradCAM, Upsample, choose_explainer
from protometry.explanations.choice import description
from protometry.lightning_modules import BagNet, Classifier
from tests.lightning_modules.registry import tiny_birds


def bagnet():
    return BagNet(num_classes=8, image_size=(32, 32), backbone={"name": "bagnet9", "width": 16}).eval()


@pytest.fixture(scope="module")
def convnext():
    return Classifier(num_classes=8, image_size=(32, 32), backbone={"name": "convnext_tiny"}).eval()


class TestChoice:
    def test_relevance_where_it_can_pass_else_the_maps(self, convnext):
        options = {"num_classes": 8, "image_size": (32, 32)}
        assert description(choose_explainer(None, Classifier(**options).eval())).startswith("prp(")
        assert description(choose_explainer(None, convnext)) == "upsample(mode=bicubic, placement=resize)"

    def test_units_that_are_classes_are_shown_as_they_are(self):
        chosen = choose_explainer(None, bagnet())
        assert description(chosen) == "upsample(mode=bilinear, placement=geometry)"

    @pytest.mark.parametrize("asked", [PRP(), LRP(), GradCAM(), Upsample()])
    def test_what_was_asked_for_is_used(self, asked):
        assert choose_explainer(asked, bagnet()) is asked

    def test_what_was_asked_for_and_cannot_be_is_refused(self, convnext):
        with pytest.raises(ValueError, match=r"but relevance cannot pass .*\. Use one of .*GradCAM, .*Upsample.$"):
            choose_explainer(PRP(), convnext)


def test_the_weights_of_a_class_are_no_prototype():
    model = bagnet()
    facts = gather_facts(tiny_birds(), "test", model, model(torch.rand(1, 3, 32, 32)), Upsample(), "paper")
    assert model.units().vectors is not None
    assert facts.units.vectors is None
