"""All pictures that an evaluation leaves in its folder: every family of metrics brings its own, and what they show."""

from __future__ import annotations

from PIL import Image

from protometry.evaluation.pictures import class_representation, concepts, funnybirds, intervention
from protometry.evaluation.pictures.family import Evaluated

FAMILIES = (class_representation.FAMILY, intervention.FAMILY, concepts.FAMILY, funnybirds.FAMILY)


def evaluation_pictures(evaluated: Evaluated) -> dict[str, Image.Image]:
    """The pictures of all families that have something to show, by name."""
    return {name: picture for family in FAMILIES for name, picture in family.draw(evaluated).items()}
