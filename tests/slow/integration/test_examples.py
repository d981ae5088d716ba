"""The scripts and the notebook in ``examples/`` run as they are, each in an empty folder, and say what they promise."""

import json
import runpy

import pytest

from tests.integration.test_examples import ARGUMENTS, SAYS
from tests.tiny_runs import ROOT, fit_learning


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    fit_learning(folder, "--data.test_size=200", model="ProtoPNet")
    return str(folder / "checkpoints/last.ckpt")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs a script as the main module, in an empty folder."""

    def said(script, *arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", [str(script), *arguments])
        runpy.run_path(str(script), run_name="__main__")
        return capsys.readouterr().out

    return said


@pytest.mark.parametrize("name", SAYS)
def test_a_script_says_what_it_promises(name, checkpoint, run):
    arguments = [checkpoint if one == "CHECKPOINT" else one for one in ARGUMENTS.get(name, [])]
    lines = run(ROOT / f"examples/{name}.py", *arguments).splitlines()
    assert any(line.startswith(SAYS[name]) for line in lines), lines


def test_the_cells_of_the_notebook_run_one_after_the_other(tmp_path, run):
    notebook = json.loads((ROOT / "examples/train_explain_measure.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    (tmp_path / "cells.py").write_text("\n".join(cells), "utf-8")
    assert "alignment/on_object" in run(tmp_path / "cells.py")
