"""Models on the Hugging Face hub, here one on loopback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from protometry.run_folder.hub import repository_of
from tests.loopback_hub import loopback_hub


@pytest.fixture
def hub(tmp_path):
    """What runs Python against the hub, and the files there."""
    with loopback_hub() as (address, files):
        settings = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "hub"), "HF_TOKEN": "hf_none"}
        settings |= {
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }

        def python(*arguments):
            command = [sys.executable, *arguments]
            return subprocess.run(
                command, env={**os.environ, **settings}, cwd=tmp_path, capture_output=True, text=True, check=False
            )

        yield python, files


@pytest.mark.parametrize("address", ["hf://birds", "birds/quickstart", "hf://a/b/c", "hf://a/b c"])
def test_other_addresses_are_refused(address):
    with pytest.raises(ValueError, match="such as hf://owner/name"):
        repository_of(address)
