"""From the database of a study to its results."""
