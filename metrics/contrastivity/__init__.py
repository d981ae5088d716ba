"""Metrics of contrastivity."""
