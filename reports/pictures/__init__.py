"""Pictures that an evaluation leaves in its folder."""

from reports.pictures.evaluation import evaluation_pictures, write_pictures
from reports.pictures.family import Evaluated

__all__ = ["Evaluated", "evaluation_pictures", "write_pictures"]
