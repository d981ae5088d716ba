"""The check of a data root."""
