"""The folder of a run: its files, its lock, and its checkpoints, read without running any code they may carry."""
