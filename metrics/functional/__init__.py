"""The pure tensor kernels behind the metrics."""

from metrics.functional.classification import (
    accuracy,
    balanced_accuracy,
    confusion_matrix,
    f1_score,
    label_f1_score,
    subset_accuracy,
    top_k_accuracy,
)
from metrics.functional.compactness import (
    features_per_class,
    global_size,
    local_size,
    negative_positive_ratio,
    number_of_features,
    sparsity,
)
from metrics.functional.intervals import bootstrap_interval, mean_interval, ratio_interval, wilson_interval
from metrics.functional.ranking import gather_units, top_units, unit_ranks
from metrics.functional.variants import Variant

__all__ = [
    "Variant",
    "accuracy",
    "balanced_accuracy",
    "bootstrap_interval",
    "confusion_matrix",
    "f1_score",
    "features_per_class",
    "gather_units",
    "global_size",
    "label_f1_score",
    "local_size",
    "mean_interval",
    "negative_positive_ratio",
    "number_of_features",
    "ratio_interval",
    "sparsity",
    "subset_accuracy",
    "top_k_accuracy",
    "top_units",
    "unit_ranks",
    "wilson_interval",
]
