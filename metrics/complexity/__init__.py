"""Complexity: whether units look at the object, and always at the same part."""

from protometry.metrics.complexity.inside_outside_relevance_difference import IORD, InsideOutsideRelevanceDifference
from protometry.metrics.complexity.overlap import BACKGROUND_OVERLAP, OBJECT_OVERLAP, BackgroundOverlap, ObjectOverlap
from protometry.metrics.complexity.part_coverage_consistency import CONSISTENCY, PartCoverageConsistency
from protometry.metrics.entry import Family

__all__ = ["BackgroundOverlap", "InsideOutsideRelevanceDifference", "ObjectOverlap", "PartCoverageConsistency"]

FAMILY = Family(
    "complexity",
    "Do the units look at the object, and always at the same part?",
    (OBJECT_OVERLAP, BACKGROUND_OVERLAP, IORD, CONSISTENCY),
)
