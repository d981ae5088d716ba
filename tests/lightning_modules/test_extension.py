"""The model of ``docs/add_a_model.md``, which no other file knows, passes the contract test."""

import pytest

from tests.lightning_modules import test_contract
from tests.pages import run_page


@pytest.fixture(scope="module")
def my_model():
    """The class, from the code of the page, which takes a second."""
    return run_page("add_a_model.md")["MyModel"]


class TestMyModel(test_contract.ContractTest):
    @pytest.fixture
    def build(self, my_model):
        return my_model
