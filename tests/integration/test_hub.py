"""Models on the Hugging Face hub, here one on loopback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from protometry.evaluation.demo import RUN
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


@pytest.mark.slow
def test_a_model_goes_to_the_hub_and_explains_from_there(hub, tmp_path):
    python, repositories = hub
    pushed = python("-m", "protometry", "push", str(RUN), "hf://birds/quickstart")
    assert pushed.returncode == 0, pushed.stderr
    files = repositories["birds/quickstart"]
    assert {"README.md", "model.json", "model.safetensors"} < set(files)
    card = files["README.md"].decode()
    assert 'PhotoExplainer("hf://birds/quickstart")' in card
    assert "Exported without an evaluation." in card
    assert "ProtoPNet ([Chen et al. 2019](https://arxiv.org/abs/1806.10574))" in card
    files["code.py"] = b"raise SystemExit"  # of somebody else, and never fetched
    photo = Path(__file__).parents[2] / "docs/prototypes.png"
    explain = ["evaluate", "explain", "--image", str(photo), "--output", "explained", "--ckpt_path"]
    explained = python("-m", "protometry", *explain, "hf://birds/quickstart")
    assert explained.returncode == 0, explained.stderr
    assert (tmp_path / "explained/prototypes-png.html").is_file()
    assert not list((tmp_path / "hub").rglob("code.py"))
    repositories.clear()  # what was fetched serves without the hub
    again = python("-c", "import protometry; print(protometry.load_model('hf://birds/quickstart').num_classes)")
    assert again.stdout == "20\n", again.stderr


@pytest.mark.slow
def test_what_the_hub_refuses_or_holds_already_is_said_in_a_line(hub):
    python, repositories = hub
    repositories["birds/theirs"] = {"pytorch_model.bin": b""}
    for command, said in (
        (["-m", "protometry", "push", str(RUN), "hf://birds/theirs"], "it holds pytorch_model.bin"),
        (["-m", "protometry", "evaluate", "explain", "--image", "a.png", "--ckpt_path", "hf://no/one"], "hf://no/one"),
    ):
        ended = python(*command)
        assert ended.returncode == 2, ended.stderr
        assert said in ended.stderr
        assert "Traceback" not in ended.stderr
    assert list(repositories["birds/theirs"]) == ["pytorch_model.bin"]


@pytest.mark.parametrize("address", ["hf://birds", "birds/quickstart", "hf://a/b/c", "hf://a/b c"])
def test_other_addresses_are_refused(address):
    with pytest.raises(ValueError, match="such as hf://owner/name"):
        repository_of(address)
