"""How much a person has to look at: the size of the head and of single explanations."""

from metrics.compactness.compactness import (
    FEATURES_PER_CLASS,
    GLOBAL_SIZE,
    LOCAL_SIZE,
    NEGATIVE_POSITIVE_RATIO,
    NUMBER_OF_FEATURES,
    SPARSITY,
    FeaturesPerClass,
    GlobalSize,
    LocalSize,
    NegativePositiveRatio,
    NumberOfFeatures,
    Sparsity,
)
from metrics.entry import Family

__all__ = ["FeaturesPerClass", "GlobalSize", "LocalSize", "NegativePositiveRatio", "NumberOfFeatures", "Sparsity"]

FAMILY = Family(
    "compactness",
    "How much is there to look at?",
    (GLOBAL_SIZE, SPARSITY, NEGATIVE_POSITIVE_RATIO, LOCAL_SIZE, NUMBER_OF_FEATURES, FEATURES_PER_CLASS),
)
