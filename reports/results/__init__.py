"""Evaluations as files and tables: read, compared, printed."""
