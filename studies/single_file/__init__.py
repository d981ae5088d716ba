"""A study as files that need no server: written for participants, and read with their answers."""

from protometry.studies.single_file.write import command

__all__ = ["command"]
