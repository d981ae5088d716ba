"""How often the model is right, whether as often as it says, and how often nothing or the order of classes decides."""

from protometry.metrics.entry import Family
from protometry.metrics.general.abstention import ABSTENTION, Abstention
from protometry.metrics.general.accuracy import ACCURACY, Accuracy, SubsetAccuracy
from protometry.metrics.general.balanced_accuracy import BALANCED_ACCURACY, BalancedAccuracy
from protometry.metrics.general.calibration_error import CALIBRATION_ERROR, CalibrationError
from protometry.metrics.general.f1 import F1, F1Score, LabelF1Score
from protometry.metrics.general.ties import TIES, Ties
from protometry.metrics.general.top_k_accuracy import TOP3_ACCURACY, TopKAccuracy
from protometry.metrics.needs import unless

__all__ = [
    "Abstention",
    "Accuracy",
    "BalancedAccuracy",
    "CalibrationError",
    "F1Score",
    "LabelF1Score",
    "SubsetAccuracy",
    "Ties",
    "TopKAccuracy",
]

FAMILY = Family(
    "general",
    "Is the model right?",
    (ACCURACY, BALANCED_ACCURACY, TOP3_ACCURACY, F1, CALIBRATION_ERROR, ABSTENTION, TIES),
    {
        "num_classes": lambda facts: unless(facts.num_classes > 3, "top-3 accuracy needs more than 3 classes"),
        "abstention": lambda facts: unless(facts.abstains, "the model decides on every image"),
    },
)
