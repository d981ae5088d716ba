"""FunnyBirds: whether an explanation says which parts the model needs, found by removing them."""

from protometry.metrics.entry import Family, MetricEntry, Words
from protometry.metrics.funnybirds.background_independence import BACKGROUND_INDEPENDENCE, BackgroundIndependence
from protometry.metrics.funnybirds.controlled_synthetic_data_check import ControlledSyntheticDataCheck
from protometry.metrics.funnybirds.distractibility import Distractibility
from protometry.metrics.funnybirds.hidden_parts import HIDDEN_PARTS, HiddenParts
from protometry.metrics.funnybirds.important_parts import ImportantParts
from protometry.metrics.funnybirds.preservation_and_deletion import DeletionCheck, PreservationCheck
from protometry.metrics.funnybirds.scores import SCORES, FunnyBirdsScores
from protometry.metrics.funnybirds.single_deletion import SingleDeletion
from protometry.metrics.funnybirds.target_sensitivity import TargetSensitivity
from protometry.metrics.funnybirds.threshold_mean import ThresholdMean
from protometry.metrics.funnybirds.totals_not_positive import TOTALS_NOT_POSITIVE, TotalsNotPositive
from protometry.metrics.general.accuracy import Accuracy
from protometry.metrics.needs import unless

__all__ = [
    "BackgroundIndependence",
    "ControlledSyntheticDataCheck",
    "DeletionCheck",
    "Distractibility",
    "FunnyBirdsScores",
    "HiddenParts",
    "ImportantParts",
    "PreservationCheck",
    "SingleDeletion",
    "TargetSensitivity",
    "ThresholdMean",
    "TotalsNotPositive",
]

ACCURACY = MetricEntry(
    "funnybirds/accuracy",
    Accuracy,
    Words(
        question="How many whole birds get their right class?",
        name="Accuracy",
        formula="share of images with argmax o(x) = y",
        source="[H23a]",
        misread="As `general/accuracy`; on whole birds only.",
    ),
    needs=("class_parts", "single_label"),
)

FAMILY = Family(
    "funnybirds",
    "Parts of the object are removed: does the explanation show what the model needs?",
    (ACCURACY, BACKGROUND_INDEPENDENCE, *SCORES, HIDDEN_PARTS, TOTALS_NOT_POSITIVE),
    {
        "class_parts": lambda facts: unless(facts.class_parts is not None, "the classes are not composed of parts"),
        "class_maps": lambda facts: facts.class_unexplained,
        "part_shares": lambda facts: unless(facts.part_shares, "boxes do not use shares of a sum"),
    },
    "After Hesse et al. (2023). Only on data whose parts can be removed; not in the default suite. P are the important "
    "parts of an explanation, PI their importance, Irr the parts and objects that the model does not use; "
    "`--interface` decides how explanations are read, and one threshold is chosen for all numbers that depend on P. "
    "[The protocol](funnybirds.md).",
)
