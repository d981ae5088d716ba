"""A fixture of ``tests/benchmarks``."""

from tests.benchmarks.test_training import training

__all__ = ["training"]
