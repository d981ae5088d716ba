"""Metrics of explanations: torchmetrics classes over the kernels of ``metrics.functional``."""

from metrics.alignment.misalignment import SpatialMisalignment
from metrics.alignment.on_object import OnObject
from metrics.alignment.part_consistency import PartConsistency
from metrics.alignment.part_purity import PartPurity
from metrics.alignment.part_stability import PartStability
from metrics.alignment.parts_covered import PartsCovered
from metrics.base import ImageMean, ImageRatio, ItemMean, ModelValue, SummaryMetric
from metrics.change.activation_change import (
    ClassificationActivationChange,
    PrototypeActivationChange,
    VisualizationActivationChange,
)
from metrics.change.location_change import (
    PrototypeActivationLocationChange,
    PrototypeLocationChange,
    VisualizationLocationChange,
)
from metrics.change.rank_change import (
    ClassificationRankChange,
    PrototypeRankChange,
)
from metrics.change.similarity_change import (
    PrototypeSimilarityChange,
)
from metrics.class_representation.class_representation import (
    ClassIndependence,
    Contrastiveness,
    ScaleInvariantDiversity,
    StructuralGrounding,
)
from metrics.compactness.compactness import (
    FeaturesPerClass,
    GlobalSize,
    LocalSize,
    NegativePositiveRatio,
    NumberOfFeatures,
    Sparsity,
)
from metrics.complexity.overlap import BackgroundOverlap, InsideOutsideRelevanceDifference, ObjectOverlap
from metrics.complexity.part_coverage import PartCoverageConsistency
from metrics.concepts.concept_existence import ConceptExistence
from metrics.concepts.concept_importance import ConceptGlobalImportance
from metrics.concepts.concept_location import ConceptLocation, ConceptMaskIntersectionOverUnion
from metrics.concepts.concept_prediction import ConceptAccuracy, ConceptAUC, ConceptCalibrationError
from metrics.concepts.intervention import InterventionArea, InterventionFinal
from metrics.concepts.residual_share import ResidualShare
from metrics.contrastivity.entropy import PrototypeEntropy
from metrics.contrastivity.location_contrast import PrototypeActivationLocationContrast, PrototypeLocationContrast
from metrics.contrastivity.prototype_distance import AverageFeatureDistance, AveragePrototypeDistance
from metrics.funnybirds.funnybirds import (
    BackgroundIndependence,
    HiddenParts,
    SingleDeletion,
    TargetSensitivity,
    TotalsNotPositive,
)
from metrics.funnybirds.funnybirds_checks import (
    ControlledSyntheticDataCheck,
    DeletionCheck,
    Distractibility,
    ImportantParts,
    PreservationCheck,
)
from metrics.funnybirds.funnybirds_scores import FunnyBirdsScores
from metrics.funnybirds.threshold_mean import ThresholdMean
from metrics.general.classification import (
    Abstention,
    Accuracy,
    BalancedAccuracy,
    F1Score,
    TopKAccuracy,
)
from metrics.general.multilabel_classification import LabelF1Score, SubsetAccuracy
from metrics.localisation.localisation import EnergyPointingGame, PointingGame, RegionIntersectionOverUnion

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
