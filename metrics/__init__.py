"""What is measured: torchmetrics classes over the kernels of ``metrics.functional``."""

from metrics.classification import (
    Accuracy,
    BalancedAccuracy,
    F1Score,
    LabelF1Score,
    SubsetAccuracy,
    TopKAccuracy,
)
from metrics.compactness import (
    FeaturesPerClass,
    GlobalSize,
    LocalSize,
    NegativePositiveRatio,
    NumberOfFeatures,
    Sparsity,
)
from metrics.image_mean import ImageMean
from metrics.image_ratio import ImageRatio
from metrics.item_mean import ItemMean
from metrics.model_value import ModelValue
from metrics.summary import SummaryMetric

__all__ = [
    "Accuracy",
    "BalancedAccuracy",
    "F1Score",
    "FeaturesPerClass",
    "GlobalSize",
    "ImageMean",
    "ImageRatio",
    "ItemMean",
    "LabelF1Score",
    "LocalSize",
    "ModelValue",
    "NegativePositiveRatio",
    "NumberOfFeatures",
    "Sparsity",
    "SubsetAccuracy",
    "SummaryMetric",
    "TopKAccuracy",
]
