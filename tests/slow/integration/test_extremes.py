import pytest

from tests.integration.test_extremes import MODELS, assert_acts_on_two_classes, assert_decides


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("classes", "side"), [(2, 448), (1000, 64)])
def test_models_decide(name, classes, side):
    assert_decides(name, classes, side)


@pytest.mark.parametrize("name", MODELS)
def test_actions_on_two_classes(name, tmp_path):
    assert_acts_on_two_classes(name, tmp_path)
