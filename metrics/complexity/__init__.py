"""Metrics of complexity."""
