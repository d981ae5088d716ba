"""How much the units differ from each other: where they look, in latent space, and in their scores."""

from protometry.metrics.contrastivity.entropy import ENTROPY, PrototypeEntropy
from protometry.metrics.contrastivity.feature_distance import (
    FEATURE_DISTANCE_INTER,
    FEATURE_DISTANCE_INTRA,
    AverageFeatureDistance,
)
from protometry.metrics.contrastivity.location_contrast import (
    ACTIVATION_LOCATION_CONTRAST,
    LOCATION_CONTRAST,
    PrototypeActivationLocationContrast,
    PrototypeLocationContrast,
)
from protometry.metrics.contrastivity.prototype_distance import (
    PROTOTYPE_DISTANCE_INTER,
    PROTOTYPE_DISTANCE_INTRA,
    AveragePrototypeDistance,
)
from protometry.metrics.entry import Family

__all__ = [
    "AverageFeatureDistance",
    "AveragePrototypeDistance",
    "PrototypeActivationLocationContrast",
    "PrototypeEntropy",
    "PrototypeLocationContrast",
]

FAMILY = Family(
    "contrastivity",
    "Do the units differ from each other?",
    (
        LOCATION_CONTRAST,
        ACTIVATION_LOCATION_CONTRAST,
        PROTOTYPE_DISTANCE_INTRA,
        PROTOTYPE_DISTANCE_INTER,
        FEATURE_DISTANCE_INTRA,
        FEATURE_DISTANCE_INTER,
        ENTROPY,
    ),
)
