"""The command ``protometry`` runs our files, whatever others are named."""

import os
import runpy
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace

import pytest

import protometry

ROOT = protometry.ROOT
OURS = str(ROOT / "configs" / "quickstart.yaml")


def run(monkeypatch, *arguments):
    """The arguments that a script is run with."""
    ran = []
    monkeypatch.setattr(runpy, "run_path", lambda path, **_: ran.extend([path, *sys.argv[1:]]))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["protometry", *arguments])
    protometry.main()
    return ran


@pytest.mark.parametrize("command", protometry.COMMANDS)
def test_a_command_runs_its_script_with_configs_of_ours(command, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "study").write_text("a file of theirs")
    script, *arguments = run(
        monkeypatch, command, "--config", "configs/quickstart.yaml", "--config=configs/quickstart.yaml", "configs/study"
    )
    assert Path(script).is_file()
    assert sys.path[0] == str(ROOT)
    assert arguments == ["--config", OURS, f"--config={OURS}", "configs/study"]


def test_a_foreign_module_and_an_unknown_command_are_refused(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "metrics", SimpleNamespace(__spec__=ModuleSpec("metrics", None, origin="/x.py")))
    for arguments, error in (
        (["train"], f"error: Expected `import metrics` to find {ROOT / 'metrics'}, but it finds /x.py: uninstall"),
        (["tain"], "error: Expected one of the commands train, evaluate, datamodules, studies, sweeps, but got 'tain'"),
    ):
        with pytest.raises(SystemExit, match="2"):
            run(monkeypatch, *arguments)
        assert capsys.readouterr().err.startswith(error)


@pytest.mark.slow
def test_a_wheel_works_among_modules_of_others(tmp_path):
    source, site, place = tmp_path / "source", tmp_path / "site", tmp_path / "place"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "tests", "docs", "runs", "build", "*.egg-info"))
    build = "import setuptools.build_meta as backend; print(backend.build_wheel('..'))"
    subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    shutil.unpack_archive(wheel, site, "zip")
    for other in (site / "evaluate" / "__init__.py", place / "metrics.py", place / "train.py"):
        other.parent.mkdir(exist_ok=True)
        other.write_text("raise SystemExit('of others')")
    command = [sys.executable, "-m", "protometry"]
    for arguments, said in (
        (["train", "fit", "--config", "configs/quickstart.yaml", "--print_config"], "experiment: quickstart"),
        (["evaluate", "--help"], "usage: evaluate.py"),
    ):
        environment = {**os.environ, "PYTHONPATH": str(site)}
        result = subprocess.run([*command, *arguments], cwd=place, env=environment, capture_output=True, text=True)
        assert said in result.stdout, result.stderr
