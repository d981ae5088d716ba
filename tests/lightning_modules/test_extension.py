"""The model of ``docs/add_a_model.md``, which no other file knows, passes the contract test."""

import pytest

from tests.lightning_modules import test_contract
from tests.pages import run_page


class TestMyModel(test_contract.ContractTest):
    @pytest.fixture(scope="class")
    def build(self):
        return run_page("add_a_model.md")["MyModel"]
