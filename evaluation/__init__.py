"""Evaluations of checkpoints: what is asked, on which hardware and data, and what ``metrics.json`` says of it."""
