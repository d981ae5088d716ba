"""Completeness and continuity: what changes under noise outside the units' regions, or slight changes of colour."""

from metrics.change.activation_change import (
    CAC,
    PAC,
    VAC,
    ClassificationActivationChange,
    PrototypeActivationChange,
    VisualizationActivationChange,
)
from metrics.change.location_change import (
    PALC,
    PLC,
    VLC,
    PrototypeActivationLocationChange,
    PrototypeLocationChange,
    VisualizationLocationChange,
)
from metrics.change.rank_change import CRC, PRC, ClassificationRankChange, PrototypeRankChange
from metrics.change.similarity_change import PSC, PrototypeSimilarityChange
from metrics.entry import Family

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
    "Noise is added everywhere but where the unit looked: does its explanation stay the same?",
    (VLC, VAC, *_COMPLETENESS),
    about="Noise of sd 0.05 outside the box of each unit's top 5 % of relevance; mean over the top-5 units of an "
    "image, then over images.",
)
CONTINUITY = Family(
    "continuity",
    "The colours of the whole image change slightly: does the explanation stay the same?",
    (*_CONTINUITY, CAC, CRC),
    about="Brightness, contrast, saturation, hue, noise, blur and compression change slightly; mean over the top-5 "
    "units of an image, then over images.",
)
