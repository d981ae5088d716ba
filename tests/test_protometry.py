"""The package has one name, and its command works whatever modules of others are called."""

import os
import runpy
import shutil
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
    known = "demo, train, evaluate, audit, edit, export, push, datamodules, words, backbones, studies, sweeps"
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


@pytest.mark.slow
def test_a_wheel_trains_among_modules_of_others(tmp_path):
    """Site-packages gets ``protometry`` alone. The processes of a run find it as the first one does."""
    source, site, place = tmp_path / "source", tmp_path / "site", tmp_path / "place"
    skipped = shutil.ignore_patterns(".*", "tests", "docs", "runs", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, ignore=skipped, symlinks=True)
    build = "import setuptools.build_meta as backend; print(backend.build_wheel('..'))"
    subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, check=True)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site]
    subprocess.run([*install, *tmp_path.glob("*.whl")], check=True)
    assert {path.name.partition("-")[0] for path in site.iterdir()} == {"bin", "protometry"}
    for name in ("metrics.py", "callbacks/__init__.py", "reports.py", "train.py", "evaluate/__init__.py"):
        for folder in (site, place):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text("raise SystemExit('of others')")

    def end(*arguments):
        command = [sys.executable, site / "bin" / "protometry", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(site)}
        result = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return result.stdout

    tiny = "--data.preset tiny --data.image_size 32 --trainer.max_epochs 1 --test_after_fit false"
    two = "--trainer.accelerator cpu --trainer.devices 2 --trainer.strategy ddp"
    end("train", "fit", "--config", "configs/quickstart.yaml", *tiny.split(), *two.split())
    assert "class_path: protometry.datamodules.SketchBirds" in (place / "runs/quickstart/config.yaml").read_text()
    said = end("evaluate", "run", "--ckpt_path", "runs/quickstart/checkpoints/last.ckpt", "--suite", "general")
    assert "general/accuracy" in said
