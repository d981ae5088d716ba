"""The fixtures of ``tests/sweeps``."""

from tests.sweeps.conftest import one_parser
from tests.sweeps.test_run import sweep
from tests.sweeps.test_tune import tuning

__all__ = ["one_parser", "sweep", "tuning"]
