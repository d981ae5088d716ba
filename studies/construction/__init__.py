"""From checkpoints to the folder of a study."""

from protometry.studies.construction.build import build, command
from protometry.studies.construction.method import Method

__all__ = ["Method", "build", "command"]
