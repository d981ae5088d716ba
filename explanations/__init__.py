"""Explainers, which say where a unit looks in an image, and pictures of their maps."""

from protometry.explanations.choice import choose_explainer
from protometry.explanations.concept_activation import CoAM
from protometry.explanations.explainer import Explainer, Targets
from protometry.explanations.grad_cam_and_gradient import GradCAM, InputXGradient
from protometry.explanations.integrated_gradients import IntegratedGradients
from protometry.explanations.random_maps import Random
from protometry.explanations.relevance import LRP, PRP, AttnLRP
from protometry.explanations.summed_maps import BoxMaps, SummedMaps
from protometry.explanations.unit_view import UnitView, unit_tile, unit_view, unit_views
from protometry.explanations.upsample import Upsample

__all__ = [
    "LRP",
    "PRP",
    "AttnLRP",
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
