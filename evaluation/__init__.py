"""Evaluations of checkpoints: the request, the hardware and data, and the content of ``metrics.json``."""
