"""Table of all metrics by result key: how to build each one, what it needs and which record it reads.

To add a metric, add one line to ``ENTRIES``. Metrics derived from :class:`~metrics.base.ModelValue` are updated once,
with facts of the model; all others with the record of every batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from metrics.alignment.misalignment import SpatialMisalignment
from metrics.alignment.on_object import OnObject
from metrics.alignment.part_consistency import PartConsistency
from metrics.alignment.part_purity import PartPurity
from metrics.alignment.part_stability import PartStability
from metrics.alignment.parts_covered import PartsCovered
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
from metrics.change.rank_change import ClassificationRankChange, PrototypeRankChange
from metrics.change.similarity_change import PrototypeSimilarityChange
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
from metrics.concepts.concept_entries import CONCEPT_METRICS, CONCEPT_NEEDS
from metrics.concepts.concept_prediction import ConceptAccuracy, ConceptAUC, ConceptCalibrationError, ConceptPrediction
from metrics.concepts.intervention import CORRECTIONS, InterventionArea, InterventionFinal
from metrics.concepts.residual_share import ResidualShare
from metrics.contrastivity.entropy import PrototypeEntropy
from metrics.contrastivity.location_contrast import PrototypeActivationLocationContrast, PrototypeLocationContrast
from metrics.contrastivity.prototype_distance import AverageFeatureDistance, AveragePrototypeDistance, Mode
from metrics.entry import MetricEntry
from metrics.facts import Facts
from metrics.funnybirds.funnybirds_entries import FUNNYBIRDS_METRICS, FUNNYBIRDS_NEEDS
from metrics.general.classification import (
    Abstention,
    Accuracy,
    BalancedAccuracy,
    F1Score,
    TopKAccuracy,
)
from metrics.general.multilabel_classification import LabelF1Score, SubsetAccuracy
from metrics.localisation.localisation import EnergyPointingGame, PointingGame, RegionIntersectionOverUnion

_OTHER_ROWS = "the class tables have other rows than the logits"


_NO_PERCENTILES = "the model has no percentiles of training logits; train a phase that enters concept_percentiles"


def _unless(present: bool, reason: str) -> str | None:
    return None if present else reason


def _most_features(facts: Facts) -> float:
    """The largest number of features of a class; without a weight matrix there is no such limit."""
    return math.inf if facts.weight is None else int((facts.features != 0).sum(dim=1).max())


# for what a metric may need: None if it is there, else the reason why the metric does not apply
NEEDS: dict[str, Callable[[Facts], str | None]] = {
    "weight": lambda facts: _unless(facts.weight is not None, "the model has no weight matrix"),
    "vectors": lambda facts: _unless(facts.vectors is not None, "the units of the model have no vectors"),
    "latent": lambda facts: _unless(facts.channels is not None, "the model has no latent map"),
    "single_label": lambda facts: _unless(not facts.multi_label, "the data are multilabel"),
    "num_classes": lambda facts: _unless(facts.num_classes > 3, "top-3 accuracy needs more than 3 classes"),
    "units": lambda facts: _unless(bool(facts.active.any()), "no unit is active"),
    "two_units": lambda facts: _unless(int(facts.active.sum()) > 1, "fewer than two units are active"),
    "explainer": lambda facts: facts.explained,
    "training": lambda facts: facts.training,
    "concepts": lambda facts: _unless(facts.concepts is not None, "the units of the model stand for no concepts"),
    "class_attributes": lambda facts: (
        None if facts.class_attributes is not None else facts.missing("class_attributes") or _OTHER_ROWS
    ),
    "class_concepts": lambda facts: (
        None if facts.class_concepts is not None else facts.missing("class_attributes") or _OTHER_ROWS
    ),
    "features": lambda facts: _unless(_most_features(facts) > 0, "no unit has a weight that is not 0"),
    "five_features": lambda facts: _unless(_most_features(facts) >= 5, "no class has five weights that are not 0"),
    "corrections": lambda facts: _unless(facts.own_values is not None, "the model predicts no concepts to correct"),
    "percentiles": lambda facts: _unless(facts.percentiles, _NO_PERCENTILES),
    "own_values": lambda facts: _unless(facts.own_values == "binary" or facts.percentiles, _NO_PERCENTILES),
    "abstention": lambda facts: _unless(facts.abstains, "the model decides on every image"),
    "residual": lambda facts: _unless(facts.residual, "the units of the model explain its logits wholly"),
    **CONCEPT_NEEDS,
    **FUNNYBIRDS_NEEDS,
}


def _consistency(facts: Facts) -> PartCoverageConsistency:
    return PartCoverageConsistency(len(facts.active), facts.num_parts, quantile=None, variant=facts.variant)


def _stability(facts: Facts, nonempty_only: bool = False) -> PartStability:
    return PartStability(len(facts.active), facts.image_size, facts.half_width, nonempty_only)


def _parts_covered(facts: Facts) -> PartsCovered:
    owner = facts.owner & facts.active[:, None]
    return PartsCovered(owner, facts.num_parts, facts.image_size, facts.half_width, facts.part_groups)


def _classification_change(facts: Facts) -> ClassificationActivationChange:
    return ClassificationActivationChange("sigmoid" if facts.multi_label else "softmax", facts.variant)


def _prototype_distance(facts: Facts, mode: Mode) -> AveragePrototypeDistance:
    assert facts.vectors is not None
    return AveragePrototypeDistance(facts.vectors, facts.num_classes, mode, facts.active)


def _feature_distance(facts: Facts, mode: Mode) -> AverageFeatureDistance:
    assert facts.channels is not None
    return AverageFeatureDistance(facts.num_classes, facts.channels, mode)


def _structural_grounding(facts: Facts) -> StructuralGrounding:
    assert facts.class_attributes is not None
    return StructuralGrounding(facts.class_attributes)


def _class_independence(facts: Facts) -> ClassIndependence:
    return ClassIndependence(len(facts.active), facts.num_classes, (facts.features != 0).any(dim=0))


def _predicted(facts: Facts, kind: type[ConceptPrediction]) -> ConceptPrediction:
    assert facts.concepts is not None
    assert facts.concept_to_group is not None
    return kind(facts.concepts, len(facts.concept_to_group), facts.active)


def _misalignment(view: str) -> dict[str, MetricEntry]:
    """The keys of one attack, which share a metric."""
    return {
        f"alignment/{view}_{part}": MetricEntry(
            lambda facts: SpatialMisalignment(facts.owner, facts.active), ("units",), view, part, shared=view
        )
        for part in SpatialMisalignment.parts
    }


def _changes(view: str, needs: tuple[str, ...]) -> dict[str, MetricEntry]:
    """The changes that completeness and continuity have in common; the perturbation differs."""
    return {
        f"{view}/plc": MetricEntry(lambda facts: PrototypeLocationChange(), needs, view),
        f"{view}/psc": MetricEntry(lambda facts: PrototypeSimilarityChange(), needs, view),
        f"{view}/prc": MetricEntry(lambda facts: PrototypeRankChange(facts.active), needs, view),
        f"{view}/palc": MetricEntry(lambda facts: PrototypeActivationLocationChange(), needs, view),
        f"{view}/pac": MetricEntry(lambda facts: PrototypeActivationChange(facts.variant), needs, view),
    }


def _corrections() -> dict[str, MetricEntry]:
    """The curves of correction; the accuracy at their end depends on the values alone."""
    entries = {}
    for ending, how in CORRECTIONS.items():
        needs = (*_PREDICTED, *_STORED[how.values])
        view = f"intervention{ending}"
        entries[f"intervention/area{ending}"] = MetricEntry(
            lambda facts, how=how, ending=ending: InterventionArea(  # type: ignore[misc]
                facts.unit_groups(how.single)[1], how.trials, ending
            ),
            needs,
            view,
        )
        if not (how.single or how.uncertain_first):
            entries[f"intervention/final{ending}"] = MetricEntry(
                lambda facts, ending=ending: InterventionFinal(ending),  # type: ignore[misc]
                needs,
                view,
            )
    return entries


_CONCEPTS = ("concepts", "single_label", "concepts_class|concepts_image")
_PREDICTED = ("corrections", *_CONCEPTS)
_STORED: dict[str | None, tuple[str, ...]] = {None: ("own_values",), "percentiles": ("percentiles",), "binary": ()}
_REGION, _PARTS, _OWNED = ("explainer", "object_mask"), ("part_points",), ("part_points", "single_label")
_VECTORS, _LATENT = ("vectors", "single_label"), ("latent", "single_label")
_TRAINING = ("weight", "features", "training")
_OBJECT = ("units", "object_mask|bounding_box")  # any explainer will do: of units, or of the predicted class

ENTRIES: dict[str, MetricEntry] = {
    "general/accuracy": MetricEntry(lambda facts: SubsetAccuracy(facts.threshold) if facts.multi_label else Accuracy()),
    "general/balanced_accuracy": MetricEntry(lambda facts: BalancedAccuracy(facts.num_classes), ("single_label",)),
    "general/top3_accuracy": MetricEntry(lambda facts: TopKAccuracy(3), ("single_label", "num_classes")),
    "general/f1": MetricEntry(
        lambda facts: (
            LabelF1Score(facts.num_classes, facts.threshold) if facts.multi_label else F1Score(facts.num_classes)
        )
    ),
    "general/abstention": MetricEntry(lambda facts: Abstention(), ("abstention",)),
    "compactness/global_size": MetricEntry(lambda facts: GlobalSize(variant=facts.variant)),
    "compactness/sparsity": MetricEntry(lambda facts: Sparsity(), ("weight",)),
    "compactness/npr": MetricEntry(lambda facts: NegativePositiveRatio(), ("weight",)),
    "compactness/local_size": MetricEntry(lambda facts: LocalSize(facts.active)),
    "compactness/number_of_features": MetricEntry(lambda facts: NumberOfFeatures(), ("weight",)),
    "compactness/features_per_class": MetricEntry(lambda facts: FeaturesPerClass(), ("weight",)),
    "completeness/vlc": MetricEntry(
        lambda facts: VisualizationLocationChange(quantile=None), ("explainer",), "completeness"
    ),
    "completeness/vac": MetricEntry(
        lambda facts: VisualizationActivationChange(quantile=None), ("explainer",), "completeness"
    ),
    **_changes("completeness", ("explainer",)),
    **_changes("continuity", ("units",)),
    "continuity/cac": MetricEntry(_classification_change, (), "continuity"),
    "continuity/crc": MetricEntry(lambda facts: ClassificationRankChange(), ("single_label",), "continuity"),
    "contrastivity/plc": MetricEntry(lambda facts: PrototypeLocationContrast(), ("two_units",)),
    "contrastivity/palc": MetricEntry(lambda facts: PrototypeActivationLocationContrast(), ("two_units",)),
    "contrastivity/apd_intra": MetricEntry(lambda facts: _prototype_distance(facts, "intra"), _VECTORS),
    "contrastivity/apd_inter": MetricEntry(lambda facts: _prototype_distance(facts, "inter"), _VECTORS),
    "contrastivity/afd_intra": MetricEntry(lambda facts: _feature_distance(facts, "intra"), _LATENT),
    "contrastivity/afd_inter": MetricEntry(lambda facts: _feature_distance(facts, "inter"), _LATENT),
    "contrastivity/entropy": MetricEntry(
        lambda facts: PrototypeEntropy(len(facts.active), active=facts.active, variant=facts.variant)
    ),
    "complexity/object_overlap": MetricEntry(lambda facts: ObjectOverlap(quantile=None), _REGION, "clipped"),
    "complexity/background_overlap": MetricEntry(lambda facts: BackgroundOverlap(quantile=None), _REGION, "clipped"),
    "complexity/iord": MetricEntry(lambda facts: InsideOutsideRelevanceDifference(quantile=None), _REGION, "clipped"),
    "complexity/consistency": MetricEntry(_consistency, ("explainer", *_PARTS), "clipped"),
    "alignment/consistency": MetricEntry(
        lambda facts: PartConsistency(len(facts.active), facts.num_parts, facts.image_size, facts.half_width), _OWNED
    ),
    "alignment/stability": MetricEntry(_stability, _OWNED, "stability"),
    "alignment/stability_nonempty": MetricEntry(
        lambda facts: _stability(facts, nonempty_only=True), _OWNED, "stability"
    ),
    "alignment/purity": MetricEntry(
        lambda facts: PartPurity(len(facts.active), facts.num_parts, active=facts.used, groups=facts.part_groups),
        _PARTS,
    ),
    "alignment/on_object": MetricEntry(lambda facts: OnObject(len(facts.active)), _OBJECT, "localisation"),
    "alignment/parts_covered": MetricEntry(_parts_covered, ("units", *_OWNED)),
    **_misalignment("misalignment"),
    **_misalignment("misalignment_noise"),
    "localisation/pointing_game": MetricEntry(lambda facts: PointingGame(), _OBJECT, "localisation"),
    "localisation/energy": MetricEntry(lambda facts: EnergyPointingGame(), _OBJECT, "localisation"),
    "localisation/iou": MetricEntry(lambda facts: RegionIntersectionOverUnion(), _OBJECT, "localisation"),
    "class_representation/structural_grounding": MetricEntry(
        _structural_grounding, ("weight", "class_attributes", "single_label")
    ),
    "class_representation/contrastiveness": MetricEntry(
        lambda facts: Contrastiveness(len(facts.active), (facts.features != 0).any(dim=0)), _TRAINING, "training"
    ),
    "class_representation/class_independence": MetricEntry(
        _class_independence, (*_TRAINING, "single_label"), "training"
    ),
    "class_representation/sid@5": MetricEntry(
        lambda facts: ScaleInvariantDiversity(facts.features), ("weight", "five_features")
    ),
    **CONCEPT_METRICS,
    "concepts/accuracy": MetricEntry(lambda facts: _predicted(facts, ConceptAccuracy), _PREDICTED),
    "concepts/auc": MetricEntry(lambda facts: _predicted(facts, ConceptAUC), _CONCEPTS),
    "concepts/ece": MetricEntry(lambda facts: _predicted(facts, ConceptCalibrationError), _PREDICTED),
    "concepts/residual_share": MetricEntry(lambda facts: ResidualShare(), ("single_label", "residual")),
    **_corrections(),
    **FUNNYBIRDS_METRICS,
}
