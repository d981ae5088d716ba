"""The folder of a run: its files, lock and checkpoints, read without running foreign code."""
