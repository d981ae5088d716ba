"""How much a person has to look at: the size of the head and of single explanations."""

from metrics.compactness.features_per_class import (
    FEATURES_PER_CLASS,
    NUMBER_OF_FEATURES,
    FeaturesPerClass,
    NumberOfFeatures,
)
from metrics.compactness.global_size import GLOBAL_SIZE, GlobalSize
from metrics.compactness.local_size import LOCAL_SIZE, LocalSize
from metrics.compactness.negative_positive_ratio import NEGATIVE_POSITIVE_RATIO, NegativePositiveRatio
from metrics.compactness.sparsity import SPARSITY, Sparsity
from metrics.entry import Family

__all__ = ["FeaturesPerClass", "GlobalSize", "LocalSize", "NegativePositiveRatio", "NumberOfFeatures", "Sparsity"]

FAMILY = Family(
    "compactness",
    "How much is there to look at?",
    (GLOBAL_SIZE, SPARSITY, NEGATIVE_POSITIVE_RATIO, LOCAL_SIZE, NUMBER_OF_FEATURES, FEATURES_PER_CLASS),
)
