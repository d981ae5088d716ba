"""Evaluations as files: written, read, and told apart."""
