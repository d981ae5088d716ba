"""Metrics of localisation."""
