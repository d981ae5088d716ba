"""How often the model is right, and how often it decides nothing."""

from metrics.entry import Family
from metrics.general.classification import (
    ABSTENTION,
    ACCURACY,
    BALANCED_ACCURACY,
    F1,
    TOP3_ACCURACY,
    Abstention,
    Accuracy,
    BalancedAccuracy,
    F1Score,
    TopKAccuracy,
)
from metrics.general.multilabel_classification import LabelF1Score, SubsetAccuracy
from metrics.needs import unless

__all__ = ["Abstention", "Accuracy", "BalancedAccuracy", "F1Score", "LabelF1Score", "SubsetAccuracy", "TopKAccuracy"]

FAMILY = Family(
    "general",
    "Is the model right?",
    (ACCURACY, BALANCED_ACCURACY, TOP3_ACCURACY, F1, ABSTENTION),
    {
        "num_classes": lambda facts: unless(facts.num_classes > 3, "top-3 accuracy needs more than 3 classes"),
        "abstention": lambda facts: unless(facts.abstains, "the model decides on every image"),
    },
)
