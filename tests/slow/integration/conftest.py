"""The fixtures of ``tests/integration``."""

from tests.integration.conftest import (
    evaluated_copy,
    evaluated_run,
    finished_run,
    one_thread,
    private_folders,
    run_copy,
    stopped_copy,
    stopped_run,
)
from tests.integration.test_commands import place
from tests.integration.test_devices import cuda
from tests.integration.test_engine import reference
from tests.integration.test_evaluate import other_birds
from tests.integration.test_export import photo
from tests.integration.test_hub import hub
from tests.integration.test_unknown import table

__all__ = [
    "cuda",
    "evaluated_copy",
    "evaluated_run",
    "finished_run",
    "hub",
    "one_thread",
    "other_birds",
    "photo",
    "place",
    "private_folders",
    "reference",
    "run_copy",
    "stopped_copy",
    "stopped_run",
    "table",
]
