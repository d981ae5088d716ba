"""Metrics of change."""
