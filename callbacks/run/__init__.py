"""Run folders: checkpoints, loggers, progress bars and pictures."""
