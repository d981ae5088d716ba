"""Training phases and the actions at their ends."""
