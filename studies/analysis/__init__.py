"""From the database of a study to its results."""

from protometry.studies.analysis.analyse import analyse, command

__all__ = ["analyse", "command"]
