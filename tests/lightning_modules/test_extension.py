"""The model of ``docs/add_a_model.md``, which no other file knows, passes the contract test."""

import pytest

from tests.lightning_modules import test_contract
from tests.pages import DOCS, blocks


def my_model():
    """The class, from the first code of the page."""
    names = {"__name__": "add_a_model"}
    exec(next(blocks(DOCS / "add_a_model.md", "python"))["text"], names)
    return names["MyModel"]


class TestMyModel(test_contract.ContractTest):
    @pytest.fixture(scope="class")
    def build(self):
        return my_model()
