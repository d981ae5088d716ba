"""Shared by the tests of FunnyBirds."""

import pytest

from tests.funnybirds_tree import make_funnybirds
from tests.photo_trees import fingerprint


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A tree of 24 training and 4 test images, which no test may change."""
    root = make_funnybirds(tmp_path_factory.mktemp("funnybirds") / "FunnyBirds")
    before = fingerprint(root)
    yield root
    assert fingerprint(root) == before
