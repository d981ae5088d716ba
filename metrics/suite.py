"""The suite of metrics an evaluation can ask for, by family or by key.

To add a metric, add one line to ``_ENTRIES``: its key, how to build it, and what it needs. Which metrics apply is
decided here, before any image is seen; a metric that does not apply is never built and its reason is reported.
Metrics derived from :class:`~metrics.model_value.ModelValue` are updated once, with facts of the model; all others
with the record of every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from metrics.activation_change import (
    ClassificationActivationChange,
    PrototypeActivationChange,
    VisualizationActivationChange,
)
from metrics.alignment import PartConsistency, PartPurity, PartStability
from metrics.classification import (
    Abstention,
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
from metrics.entropy import PrototypeEntropy
from metrics.functional.primitives.variants import Variant
from metrics.functional.prototype_distance import Mode
from metrics.localisation import EnergyPointingGame, PointingGame, RegionIntersectionOverUnion
from metrics.location_change import (
    PrototypeActivationLocationChange,
    PrototypeActivationLocationContrast,
    PrototypeLocationChange,
    PrototypeLocationContrast,
    VisualizationLocationChange,
)
from metrics.misalignment import SpatialMisalignment
from metrics.overlap import BackgroundOverlap, InsideOutsideRelevanceDifference, ObjectOverlap
from metrics.part_coverage import PartCoverageConsistency
from metrics.prototype_distance import AverageFeatureDistance, AveragePrototypeDistance
from metrics.rank_change import ClassificationRankChange, PrototypeRankChange
from metrics.similarity_change import PrototypeSimilarityChange
from metrics.summary import SummaryMetric

AnyMetric = SummaryMetric | SpatialMisalignment
_USED_WEIGHT = 1e-5  # PIP-Net: a unit is used by the head if some class gives it a larger weight


@dataclass(frozen=True)
class Facts:
    """What the suite has to know about a model and a data set.

    Args:
        num_classes: K.
        multi_label: whether an image has several labels.
        active: ``(U,)`` bool, the model's active units.
        owner: ``(U, K)`` bool.
        missing: for the name of an optional field of the data set, None if it is there, else the reason.
        weight: ``(K, U)`` float head weights, or None.
        vectors: ``(U, D)`` float unit vectors, or None.
        channels: D of the latent, or None.
        image_size: ``(H, W)`` pixels.
        num_parts: N.
        part_groups: parts to merge for purity, or None.
        explained: None if the explainer explains units of this model, else why not.
        variant: of the metrics that have one.
        abstains: whether the model may leave an image undecided.
        threshold: logit above which a label is predicted, where an image has several.
        presence: ``(K, U)`` bool assignment of shared units to classes, or None.
    """

    num_classes: int
    multi_label: bool
    active: Tensor
    owner: Tensor
    missing: Callable[[str], str | None]
    weight: Tensor | None = None
    vectors: Tensor | None = None
    channels: int | None = None
    image_size: tuple[int, int] = (224, 224)
    num_parts: int = 0
    part_groups: Sequence[Sequence[int]] | None = None
    explained: str | None = None
    variant: Variant = "paper"
    abstains: bool = False
    threshold: float = 0.0
    presence: Tensor | None = None

    @property
    def half_width(self) -> int:
        """Of the window around a peak: 36 pixels at a height of 224."""
        return round(36 * self.image_size[0] / 224)

    @property
    def used(self) -> Tensor:
        """``(U,)`` bool, active units with a weight in the head."""
        if self.weight is None:
            return self.active
        return self.active & (self.weight.amax(dim=0) > _USED_WEIGHT)


@dataclass(frozen=True)
class MetricEntry:
    """How to build a metric and what it needs.

    Args:
        build: makes the metric from the facts; keys with the same ``build`` share one metric.
        needs: names in ``_NEEDS`` or of optional fields of the data set; ``"a|b"`` for either of two fields.
        view: the record it reads: that of the clean image, or of a perturbed one.
        part: which entry of the metric's summary the key stands for, where it has several.
    """

    build: Callable[[Facts], AnyMetric]
    needs: tuple[str, ...] = ()
    view: str = "clean"
    part: str | None = None


def _needs(present: bool, reason: str) -> str | None:
    return None if present else reason


_NEEDS: dict[str, Callable[[Facts], str | None]] = {
    "weight": lambda facts: _needs(facts.weight is not None, "the model has no weight matrix"),
    "vectors": lambda facts: _needs(facts.vectors is not None, "the units of the model have no vectors"),
    "latent": lambda facts: _needs(facts.channels is not None, "the model has no latent map"),
    "single_label": lambda facts: _needs(not facts.multi_label, "an image has several labels"),
    "num_classes": lambda facts: _needs(facts.num_classes > 3, "top-3 accuracy needs more than 3 classes"),
    "units": lambda facts: _needs(bool(facts.active.any()), "no unit is active"),
    "two_units": lambda facts: _needs(int(facts.active.sum()) > 1, "fewer than two units are active"),
    "explainer": lambda facts: facts.explained,
    "abstention": lambda facts: _needs(facts.abstains, "the model decides on every image"),
}


def _misalignment(facts: Facts) -> SpatialMisalignment:
    return SpatialMisalignment(facts.owner, facts.active)


def _misalignment_noise(facts: Facts) -> SpatialMisalignment:
    return SpatialMisalignment(facts.owner, facts.active)


def _consistency(facts: Facts) -> PartCoverageConsistency:
    return PartCoverageConsistency(len(facts.active), facts.num_parts, quantile=None, variant=facts.variant)


def _stability(facts: Facts, nonempty_only: bool = False) -> PartStability:
    return PartStability(len(facts.active), facts.image_size, facts.half_width, nonempty_only)


def _classification_change(facts: Facts) -> ClassificationActivationChange:
    return ClassificationActivationChange("sigmoid" if facts.multi_label else "softmax", facts.variant)


def _prototype_distance(facts: Facts, mode: Mode) -> AveragePrototypeDistance:
    assert facts.vectors is not None
    return AveragePrototypeDistance(facts.vectors, facts.num_classes, mode, facts.active)


def _feature_distance(facts: Facts, mode: Mode) -> AverageFeatureDistance:
    assert facts.channels is not None
    return AverageFeatureDistance(facts.num_classes, facts.channels, mode)


def _changes(view: str, needs: tuple[str, ...]) -> dict[str, MetricEntry]:
    """The changes that completeness and continuity share; they differ in the perturbation."""
    return {
        f"{view}/plc": MetricEntry(lambda facts: PrototypeLocationChange(), needs, view),
        f"{view}/psc": MetricEntry(lambda facts: PrototypeSimilarityChange(), needs, view),
        f"{view}/prc": MetricEntry(lambda facts: PrototypeRankChange(facts.active), needs, view),
        f"{view}/palc": MetricEntry(lambda facts: PrototypeActivationLocationChange(), needs, view),
        f"{view}/pac": MetricEntry(lambda facts: PrototypeActivationChange(facts.variant), needs, view),
    }


_REGION, _PARTS, _OWNED = ("explainer", "object_mask"), ("part_points",), ("part_points", "single_label")
_VECTORS, _LATENT = ("vectors", "single_label"), ("latent", "single_label")
_OBJECT = ("units", "object_mask|bounding_box")  # any explainer will do: of units, or of the predicted class

_ENTRIES: dict[str, MetricEntry] = {
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
    **{
        f"alignment/misalignment_{part}": MetricEntry(_misalignment, ("units",), "misalignment", part)
        for part in SpatialMisalignment.parts
    },
    **{
        f"alignment/misalignment_noise_{part}": MetricEntry(_misalignment_noise, ("units",), "misalignment_noise", part)
        for part in SpatialMisalignment.parts
    },
    "localisation/pointing_game": MetricEntry(lambda facts: PointingGame(), _OBJECT, "localisation"),
    "localisation/energy": MetricEntry(lambda facts: EnergyPointingGame(), _OBJECT, "localisation"),
    "localisation/iou": MetricEntry(lambda facts: RegionIntersectionOverUnion(), _OBJECT, "localisation"),
}

FAMILIES: dict[str, tuple[str, ...]] = {
    family: tuple(key for key in _ENTRIES if key.split("/")[0] == family)
    for family in dict.fromkeys(key.split("/")[0] for key in _ENTRIES)
}
_BEYOND_QUANPROTO = (
    "general/abstention",
    *("compactness/number_of_features", "compactness/features_per_class"),
    *FAMILIES["alignment"],
    *FAMILIES["localisation"],
)
# Schlinge et al. (2025): the metrics of their tables 2 to 5, whose accuracy is in fact the balanced one
SUITES: dict[str, tuple[str, ...]] = {
    "quanproto": tuple(key for key in _ENTRIES if key not in _BEYOND_QUANPROTO),
    "all": tuple(_ENTRIES),
}


def resolve(suite: Sequence[str]) -> list[str]:
    """Expand the names in a config to keys.

    Args:
        suite: ``"all"``, ``"quanproto"``, families (``"general"``) or keys (``"general/f1"``).

    Returns:
        Keys without repetition, in the order asked for; within a family, in that of ``FAMILIES``.

    Raises:
        ValueError: if a name is unknown, listing the known ones.
        TypeError: if ``suite`` is a single string.

    Example:
        >>> resolve(["general/f1", "general"])
        ['general/f1', 'general/accuracy', 'general/balanced_accuracy', 'general/top3_accuracy', 'general/abstention']
    """
    if isinstance(suite, str):
        raise TypeError(f"Expected argument `suite` to be a list of names, but got {suite!r}; write [{suite!r}].")
    known = SUITES | FAMILIES | {key: (key,) for key in _ENTRIES}
    if unknown := [name for name in suite if name not in known]:
        raise ValueError(f"Expected argument `suite` to hold names among {list(known)}, but got {unknown}.")
    return list(dict.fromkeys(key for name in suite for key in known[name]))


def build(keys: Sequence[str], facts: Facts) -> tuple[dict[str, AnyMetric], dict[str, str]]:
    """Build the metrics that apply.

    If you put them into a ``MetricCollection``, pass ``compute_groups=False``: the default merges metrics whose states
    happen to be equal after the first batch.

    Args:
        keys: what to build; names that :func:`resolve` takes.
        facts: what is known about the model and the data set.

    Returns:
        Key to metric, and key to the reason why it is not applicable.

    Raises:
        ValueError: if a name is unknown.

    Example:
        >>> import torch
        >>> active, owner = torch.ones(8, dtype=torch.bool), torch.ones(8, 4, dtype=torch.bool)
        >>> facts = Facts(4, False, active, owner, missing=lambda flag: None)
        >>> build(["general/accuracy", "compactness/npr"], facts)
        ({'general/accuracy': Accuracy()}, {'compactness/npr': 'weight: the model has no weight matrix'})
    """
    metrics: dict[str, AnyMetric] = {}
    skipped: dict[str, str] = {}
    shared: dict[Callable[[Facts], AnyMetric], AnyMetric] = {}
    for key in resolve(keys):
        entry = _ENTRIES[key]
        reasons = [f"{need}: {reason}" for need in entry.needs if (reason := _reason(need, facts)) is not None]
        if reasons:
            skipped[key] = "; ".join(reasons)
            continue
        if entry.build not in shared:
            shared[entry.build] = entry.build(facts)
        metrics[key] = shared[entry.build]
    return metrics, skipped


def entry_of(key: str) -> MetricEntry:
    """The entry of a key.

    Example:
        >>> entry_of("completeness/vlc").view
        'completeness'
    """
    return _ENTRIES[key]


def _reason(need: str, facts: Facts) -> str | None:
    if need in _NEEDS:
        return _NEEDS[need](facts)
    missing = [facts.missing(field) for field in need.split("|")]
    return None if None in missing else "; ".join(reason for reason in missing if reason)
