import pytest

from tests.integration.test_extremes import MODELS
from tests.integration.test_extremes import test_models_decide as decides


@pytest.mark.parametrize("name", MODELS)
def test_models_decide_on_large_images(name):
    decides(name, classes=2, side=448)
