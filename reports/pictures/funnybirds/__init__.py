"""Pictures of the FunnyBirds protocol."""
