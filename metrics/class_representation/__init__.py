"""Metrics of class representation."""
