"""Metrics of funnybirds."""
