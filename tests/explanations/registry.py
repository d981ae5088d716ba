"""The explainers of the protocol test, each as cheap as it gets; a new explainer adds one line to ``EXPLAINERS``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from protometry.explanations.concept_activation import CoAM
from protometry.explanations.explainer import Explainer
from protometry.explanations.grad_cam_and_gradient import GradCAM, InputXGradient
from protometry.explanations.integrated_gradients import IntegratedGradients
from protometry.explanations.random_maps import Random
from protometry.explanations.relevance.attn_lrp import AttnLRP
from protometry.explanations.relevance.prp_and_lrp import LRP, PRP
from protometry.explanations.summed_maps import BoxMaps, SummedMaps
from protometry.explanations.upsample import Upsample

EXPLAINERS: dict[str, Callable[[], Explainer]] = {
    "Upsample": Upsample,
    "PRP": PRP,
    "LRP": LRP,
    "AttnLRP": AttnLRP,
    "Upsample geometry": partial(Upsample, placement="geometry"),
    "GradCAM": GradCAM,
    "GradCAM signed": partial(GradCAM, relu=False, mode="nearest"),
    "IntegratedGradients": partial(IntegratedGradients, steps=3, baseline=(0.5, 0.4, 0.3)),
    "InputXGradient": InputXGradient,
    "CoAM": CoAM,
    "CoAM score": partial(CoAM, scale="score"),
    "SummedMaps": SummedMaps,
    "SummedMaps geometry": partial(SummedMaps, "bilinear", "geometry"),
    "BoxMaps": BoxMaps,
    "BoxMaps reference": partial(BoxMaps, "reference"),
    "Random": Random,
    "Random pixel": partial(Random, pattern="pixel"),
}
