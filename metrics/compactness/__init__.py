"""Metrics of compactness."""
