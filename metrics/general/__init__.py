"""Metrics of general."""
