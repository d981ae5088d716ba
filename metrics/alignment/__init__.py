"""Metrics of alignment."""
