"""Explainers, which say where a unit looks in an image, and pictures of their maps."""

from explanations.choice import choose_explainer
from explanations.concept_activation import CoAM
from explanations.control import Random
from explanations.explainer import Explainer, Targets
from explanations.gradients import GradCAM, InputXGradient
from explanations.integrated_gradients import IntegratedGradients
from explanations.relevance import LRP, PRP
from explanations.summed_maps import BoxMaps, SummedMaps
from explanations.unit_view import UnitView, unit_tile, unit_view, unit_views
from explanations.upsample import Upsample

__all__ = [
    "LRP",
    "PRP",
    "BoxMaps",
    "CoAM",
    "Explainer",
    "GradCAM",
    "InputXGradient",
    "IntegratedGradients",
    "Random",
    "SummedMaps",
    "Targets",
    "UnitView",
    "Upsample",
    "choose_explainer",
    "unit_tile",
    "unit_view",
    "unit_views",
]
