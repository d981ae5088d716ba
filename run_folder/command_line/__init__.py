"""Command lines: parsers, paths and messages, and how a command ends."""
