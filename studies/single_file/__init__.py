"""A study as files that need no server: written for participants, and read with their answers."""
