"""From checkpoints to the folder of a study."""

from studies.build.build import build, command
from studies.build.method import Method

__all__ = ["Method", "build", "command"]
