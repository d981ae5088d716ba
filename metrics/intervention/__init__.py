"""Intervention: what correcting wrong concepts does to the decision."""

from protometry.metrics.entry import Family
from protometry.metrics.intervention.intervention import ENTRIES, InterventionArea, InterventionFinal
from protometry.metrics.needs import unless

__all__ = ["InterventionArea", "InterventionFinal"]

_NO_PERCENTILES = "the model has no percentiles of training logits; train a phase that enters concept_percentiles"

FAMILY = Family(
    "intervention",
    "Does the decision improve if a person corrects wrong concepts?",
    ENTRIES,
    {
        "percentiles": lambda facts: unless(facts.percentiles, _NO_PERCENTILES),
        "own_values": lambda facts: unless(facts.own_values == "binary" or facts.percentiles, _NO_PERCENTILES),
    },
    "After Koh et al. (2020), in five random orders per image, or the most uncertain first (`_uncertainty`) after Shin "
    "et al. (2023); all concepts that answer one question at once, such as the colour of a part, or one by one "
    "(`_single`). A corrected concept becomes what the model takes by itself, 1 or 0 (`_binary`) or a percentile of "
    "its training logits (`_percentiles`). An entry has the accuracy without correction, `baseline`, and the `lift` "
    "above it; an area has its `curve` and the standard deviations over orders, `curve_sd` and `standard_deviation`. "
    "Not in the default suite.",
)
