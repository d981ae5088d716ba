"""Metrics of concepts."""
