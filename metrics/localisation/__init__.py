"""Localisation of the object by the maps."""

from metrics.entry import Family
from metrics.localisation.localisation import (
    ENERGY,
    IOU,
    POINTING_GAME,
    EnergyPointingGame,
    PointingGame,
    RegionIntersectionOverUnion,
)

__all__ = ["EnergyPointingGame", "PointingGame", "RegionIntersectionOverUnion"]

FAMILY = Family(
    "localisation",
    "Do the maps lie on the object?",
    (POINTING_GAME, ENERGY, IOU),
)
