"""Class representations: how similar classes are to each other, and what their features are like."""

from protometry.metrics.class_representation.class_independence import CLASS_INDEPENDENCE, ClassIndependence
from protometry.metrics.class_representation.contrastiveness import CONTRASTIVENESS, Contrastiveness
from protometry.metrics.class_representation.scale_invariant_diversity import (
    SCALE_INVARIANT_DIVERSITY,
    ScaleInvariantDiversity,
)
from protometry.metrics.class_representation.structural_grounding import STRUCTURAL_GROUNDING, StructuralGrounding
from protometry.metrics.entry import Family
from protometry.metrics.needs import class_table, most_features, unless

__all__ = ["ClassIndependence", "Contrastiveness", "ScaleInvariantDiversity", "StructuralGrounding"]

FAMILY = Family(
    "class_representation",
    "What are classes made of: are similar classes alike, and features general and diverse?",
    (STRUCTURAL_GROUNDING, CONTRASTIVENESS, CLASS_INDEPENDENCE, SCALE_INVARIANT_DIVERSITY),
    {
        "class_attributes": class_table("class_attributes"),
        "five_features": lambda facts: unless(most_features(facts) >= 5, "no class has five weights that are not 0"),
    },
    about="For every model with a weight matrix, over its active units with a non-zero weight; see [class "
    "representations](read_the_numbers.md#class-representations). Not in the default suite.",
)
