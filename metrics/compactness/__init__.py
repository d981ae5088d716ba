"""How much a person has to look at: the size of the head and of single explanations."""

from protometry.metrics.compactness.decision_share import DECISION_SHARE, DecisionShare
from protometry.metrics.compactness.distinct_regions import DISTINCT_REGIONS, DistinctRegions
from protometry.metrics.compactness.features_per_class import (
    FEATURES_PER_CLASS,
    NUMBER_OF_FEATURES,
    FeaturesPerClass,
    NumberOfFeatures,
)
from protometry.metrics.compactness.global_size import GLOBAL_SIZE, GlobalSize
from protometry.metrics.compactness.local_size import LOCAL_SIZE, LocalSize
from protometry.metrics.compactness.negative_positive_ratio import NEGATIVE_POSITIVE_RATIO, NegativePositiveRatio
from protometry.metrics.compactness.sparsity import SPARSITY, Sparsity
from protometry.metrics.entry import Family
from protometry.metrics.needs import unless

__all__ = [
    "DecisionShare",
    "DistinctRegions",
    "FeaturesPerClass",
    "GlobalSize",
    "LocalSize",
    "NegativePositiveRatio",
    "NumberOfFeatures",
    "Sparsity",
]

FAMILY = Family(
    "compactness",
    "How much must one look at?",
    (
        GLOBAL_SIZE,
        SPARSITY,
        NEGATIVE_POSITIVE_RATIO,
        LOCAL_SIZE,
        NUMBER_OF_FEATURES,
        FEATURES_PER_CLASS,
        DECISION_SHARE,
        DISTINCT_REGIONS,
    ),
    needs={
        "decision": lambda facts: unless(
            facts.weight is not None or facts.context or facts.decides_by_tree,
            "the model has neither a weight matrix nor a tree",
        ),
    },
)
