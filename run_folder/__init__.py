"""The folder of a run: its files, its lock, and its checkpoints, read without running any code they may carry."""

from run_folder.checkpoint_file import folder_of_run, read_checkpoint
from run_folder.trusted_classes import class_paths, made_as_stored, stored_class

__all__ = ["class_paths", "folder_of_run", "made_as_stored", "read_checkpoint", "stored_class"]
