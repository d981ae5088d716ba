"""Released files of large networks, and of models that are pruned or have other options."""

import pytest

from tests.lightning_modules.test_released import IN_SLOW, assert_same_logits


@pytest.mark.parametrize("name", sorted(IN_SLOW))
def test_logits_are_those_of_the_authors_layers(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_same_logits(name)
