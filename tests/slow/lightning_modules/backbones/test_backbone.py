"""Receptive fields of deep networks."""

import pytest

from tests.lightning_modules.backbones.test_backbone import BACKBONES, DEEP, assert_receptive_field


@pytest.mark.parametrize(("name", "strides"), [row for row in BACKBONES if row[0] in DEEP])
def test_receptive_field_is_the_support_of_the_gradient(name, strides):
    assert_receptive_field(name, strides)
