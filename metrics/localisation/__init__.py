"""Localisation of the object by the maps."""

from protometry.metrics.entry import Family
from protometry.metrics.localisation.pointing_game import ENERGY, POINTING_GAME, EnergyPointingGame, PointingGame
from protometry.metrics.localisation.region_intersection_over_union import IOU, RegionIntersectionOverUnion

__all__ = ["EnergyPointingGame", "PointingGame", "RegionIntersectionOverUnion"]

FAMILY = Family(
    "localisation",
    "Do the maps lie on the object?",
    (POINTING_GAME, ENERGY, IOU),
)
