"""One test per case of the classes in :mod:`tests.metrics.tester`."""

import pytest


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", metafunc.cls.cases.values(), ids=metafunc.cls.cases)
