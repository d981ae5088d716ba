"""Pictures that an evaluation leaves in its folder."""

from protometry.evaluation.pictures.evaluation import evaluation_pictures
from protometry.evaluation.pictures.family import Evaluated

__all__ = ["Evaluated", "evaluation_pictures"]
