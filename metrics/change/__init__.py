"""Completeness and continuity: what changes under noise outside the units' regions, or slight changes of colour."""

from protometry.metrics.change.classification_activation_change import CAC, ClassificationActivationChange
from protometry.metrics.change.classification_rank_change import CRC, ClassificationRankChange
from protometry.metrics.change.prototype_activation_change import PAC, PrototypeActivationChange
from protometry.metrics.change.prototype_activation_location_change import PALC, PrototypeActivationLocationChange
from protometry.metrics.change.prototype_location_change import PLC, PrototypeLocationChange
from protometry.metrics.change.prototype_rank_change import PRC, PrototypeRankChange
from protometry.metrics.change.prototype_similarity_change import PSC, PrototypeSimilarityChange
from protometry.metrics.change.visualization_activation_change import VAC, VisualizationActivationChange
from protometry.metrics.change.visualization_location_change import VLC, VisualizationLocationChange
from protometry.metrics.entry import Family

__all__ = [
    "ClassificationActivationChange",
    "ClassificationRankChange",
    "PrototypeActivationChange",
    "PrototypeActivationLocationChange",
    "PrototypeLocationChange",
    "PrototypeRankChange",
    "PrototypeSimilarityChange",
    "VisualizationActivationChange",
    "VisualizationLocationChange",
]

_COMPLETENESS, _CONTINUITY = zip(PLC, PSC, PRC, PALC, PAC, strict=True)
COMPLETENESS = Family(
    "completeness",
    "Noise is added everywhere except where the unit looks: does its explanation stay the same?",
    (VLC, VAC, *_COMPLETENESS),
    about="Noise of sd 0.05 outside the box around each unit's top 5 % of relevance; mean over the top-5 units of "
    "an image, then over images.",
)
CONTINUITY = Family(
    "continuity",
    "The colours of the whole image change slightly: does the explanation stay the same?",
    (*_CONTINUITY, CAC, CRC),
    about="Brightness, contrast, saturation, hue, noise, blur and compression change slightly; mean over the top-5 "
    "units of an image, then over images.",
)
