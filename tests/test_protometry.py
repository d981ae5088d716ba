"""The package has one name, and its command works whatever modules of others are called."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import protometry
from protometry import scripts

ROOT = Path(__file__).parents[1]
OURS = str(scripts.ROOT / "configs" / "quickstart.yaml")


def run(monkeypatch, *arguments):
    """The module that is run, and its arguments."""
    ran = []
    monkeypatch.setattr(runpy, "run_module", lambda module, **_: ran.extend([module, *sys.argv[1:]]))
    monkeypatch.setattr(sys, "argv", ["protometry", *arguments])
    scripts.main()
    return ran


@pytest.mark.parametrize("command", scripts.COMMANDS)
def test_a_command_runs_its_module_with_configs_of_ours(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "study").write_text("a file of theirs")
    module, *arguments = run(
        monkeypatch, command, "--config", "configs/quickstart.yaml", "--config=configs/quickstart.yaml", "configs/study"
    )
    assert module == scripts.COMMANDS[command][1]
    assert arguments == ["--config", OURS, f"--config={OURS}", "configs/study"]


def test_an_unknown_command_is_refused(monkeypatch, capsys):
    with pytest.raises(SystemExit, match="2"):
        run(monkeypatch, "tain")
    known = (
        "demo, train, evaluate, audit, app, edit, export, serve, push, datamodules, words, backbones, studies, sweeps"
    )
    assert f"one of the commands {known}, but got 'tain'" in capsys.readouterr().err


def test_functions_of_the_package_are_imported_when_used():
    """Command lines do not wait for PyTorch."""
    from protometry.lightning_modules.bases.load import load_model

    assert protometry.load_model is load_model
    assert all(callable(getattr(protometry, name)) for name in dir(protometry))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = protometry.nothing
    code = "import protometry, sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
