"""As for the tests of studies."""

from tests.studies.test_construction import birds, run

__all__ = ["birds", "run"]
