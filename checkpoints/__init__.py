"""Checkpoints of runs: files read, and classes found, without running any code that somebody may have put there."""

from checkpoints.classes import class_paths, stored_class
from checkpoints.files import read_checkpoint, run_folder

__all__ = ["class_paths", "read_checkpoint", "run_folder", "stored_class"]
