"""A fixture of ``tests/callbacks/phases``."""

from tests.callbacks.phases.test_scores import trained_on

__all__ = ["trained_on"]
