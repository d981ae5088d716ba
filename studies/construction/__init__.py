"""From checkpoints to the folder of a study."""
