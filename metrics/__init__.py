"""Metrics of explanations: torchmetrics classes over the kernels of ``metrics.functional``."""

from metrics.activation_change import (
    ClassificationActivationChange,
    PrototypeActivationChange,
    VisualizationActivationChange,
)
from metrics.base import ImageMean, ImageRatio, ItemMean, ModelValue, SummaryMetric
from metrics.class_representation import (
    ClassIndependence,
    Contrastiveness,
    ScaleInvariantDiversity,
    StructuralGrounding,
)
from metrics.classification import (
    Abstention,
    Accuracy,
    BalancedAccuracy,
    F1Score,
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
from metrics.concept_existence import ConceptExistence
from metrics.concept_importance import ConceptGlobalImportance
from metrics.concept_location import ConceptLocation, ConceptMaskIntersectionOverUnion
from metrics.concept_prediction import ConceptAccuracy, ConceptAUC, ConceptCalibrationError
from metrics.entropy import PrototypeEntropy
from metrics.funnybirds import (
    BackgroundIndependence,
    HiddenParts,
    SingleDeletion,
    TargetSensitivity,
    TotalsNotPositive,
)
from metrics.funnybirds_checks import (
    ControlledSyntheticDataCheck,
    DeletionCheck,
    Distractibility,
    ImportantParts,
    PreservationCheck,
)
from metrics.funnybirds_scores import FunnyBirdsScores
from metrics.intervention import InterventionArea, InterventionFinal
from metrics.localisation import EnergyPointingGame, PointingGame, RegionIntersectionOverUnion
from metrics.location_change import (
    PrototypeActivationLocationChange,
    PrototypeActivationLocationContrast,
    PrototypeLocationChange,
    PrototypeLocationContrast,
    VisualizationLocationChange,
)
from metrics.misalignment import SpatialMisalignment
from metrics.multilabel_classification import LabelF1Score, SubsetAccuracy
from metrics.on_object import OnObject
from metrics.overlap import BackgroundOverlap, InsideOutsideRelevanceDifference, ObjectOverlap
from metrics.part_consistency import PartConsistency
from metrics.part_coverage import PartCoverageConsistency
from metrics.part_purity import PartPurity
from metrics.part_stability import PartStability
from metrics.parts_covered import PartsCovered
from metrics.prototype_distance import AverageFeatureDistance, AveragePrototypeDistance
from metrics.rank_change import (
    ClassificationRankChange,
    PrototypeRankChange,
)
from metrics.residual_share import ResidualShare
from metrics.similarity_change import (
    PrototypeSimilarityChange,
)
from metrics.threshold_mean import ThresholdMean

__all__ = [
    "Abstention",
    "Accuracy",
    "AverageFeatureDistance",
    "AveragePrototypeDistance",
    "BackgroundIndependence",
    "BackgroundOverlap",
    "BalancedAccuracy",
    "ClassIndependence",
    "ClassificationActivationChange",
    "ClassificationRankChange",
    "ConceptAUC",
    "ConceptAccuracy",
    "ConceptCalibrationError",
    "ConceptExistence",
    "ConceptGlobalImportance",
    "ConceptLocation",
    "ConceptMaskIntersectionOverUnion",
    "Contrastiveness",
    "ControlledSyntheticDataCheck",
    "DeletionCheck",
    "Distractibility",
    "EnergyPointingGame",
    "F1Score",
    "FeaturesPerClass",
    "FunnyBirdsScores",
    "GlobalSize",
    "HiddenParts",
    "ImageMean",
    "ImageRatio",
    "ImportantParts",
    "InsideOutsideRelevanceDifference",
    "InterventionArea",
    "InterventionFinal",
    "ItemMean",
    "LabelF1Score",
    "LocalSize",
    "ModelValue",
    "NegativePositiveRatio",
    "NumberOfFeatures",
    "ObjectOverlap",
    "OnObject",
    "PartConsistency",
    "PartCoverageConsistency",
    "PartPurity",
    "PartStability",
    "PartsCovered",
    "PointingGame",
    "PreservationCheck",
    "PrototypeActivationChange",
    "PrototypeActivationLocationChange",
    "PrototypeActivationLocationContrast",
    "PrototypeEntropy",
    "PrototypeLocationChange",
    "PrototypeLocationContrast",
    "PrototypeRankChange",
    "PrototypeSimilarityChange",
    "RegionIntersectionOverUnion",
    "ResidualShare",
    "ScaleInvariantDiversity",
    "SingleDeletion",
    "Sparsity",
    "SpatialMisalignment",
    "StructuralGrounding",
    "SubsetAccuracy",
    "SummaryMetric",
    "TargetSensitivity",
    "ThresholdMean",
    "TopKAccuracy",
    "TotalsNotPositive",
    "VisualizationActivationChange",
    "VisualizationLocationChange",
]
