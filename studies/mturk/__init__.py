"""Launch a study on Mechanical Turk, look at its assignments, approve them and pay bonuses."""

from studies.mturk.command import command

__all__ = ["command"]
