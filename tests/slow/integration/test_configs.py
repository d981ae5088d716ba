import pytest

from tests.integration.test_configs import CONFIGS, QUICKSTART
from tests.integration.test_configs import test_the_command_of_a_config_instantiates as instantiates


@pytest.mark.parametrize("config", [name for name in CONFIGS if name not in QUICKSTART])
def test_the_command_of_a_config_instantiates(config, tmp_path, monkeypatch):
    instantiates(config, tmp_path, monkeypatch)
