"""Fixtures of ``tests/callbacks/phases``."""

from tests.callbacks.phases.test_resume import straight
from tests.callbacks.phases.test_scores import trained_on
from tests.callbacks.phases.test_selection import whole

__all__ = ["straight", "trained_on", "whole"]
