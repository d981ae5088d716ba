"""From checkpoints to the folder of a study."""

from studies.construction.build import build, command
from studies.construction.method import Method

__all__ = ["Method", "build", "command"]
