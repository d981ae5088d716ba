"""The scripts and the notebook in ``examples/`` run as they are, each in an empty folder, and say what they promise."""

import json
import subprocess
import sys

import pytest

from tests.tiny_runs import ROOT, fit_learning

SAYS = {  # the first words of a line
    "any_network": "peak on the bird",
    "correct_concepts": "8 of 20 concepts corrected",
    "explain_photo": "The same as a picture",
    "human_study": "prototypes - photos",
    "own_data": "['disc', 'square'] {'train': 16, 'val': 4, 'test': 20}",
    "own_metric": "own/score_margin",
    "own_model": "continuity/plc",
    "train_and_evaluate": "alignment/on_object",
}
ARGUMENTS = {"explain_photo": ["CHECKPOINT"], "own_metric": ["CHECKPOINT"], "human_study": ["CHECKPOINT", "out"]}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    fit_learning(folder, "--data.test_size=200", model="ProtoPNet")
    return str(folder / "checkpoints/last.ckpt")


def run(folder, *command):
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_all_scripts_are_run():
    assert {file.stem for file in (ROOT / "examples").glob("*.py")} == SAYS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", SAYS)
def test_a_script_says_what_it_promises(name, checkpoint, tmp_path):
    arguments = [checkpoint if one == "CHECKPOINT" else one for one in ARGUMENTS.get(name, [])]
    lines = run(tmp_path, str(ROOT / f"examples/{name}.py"), *arguments).splitlines()
    assert any(line.startswith(SAYS[name]) for line in lines), lines


@pytest.mark.slow
def test_the_cells_of_the_notebook_run_one_after_the_other(tmp_path):
    notebook = json.loads((ROOT / "examples/train_explain_measure.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    (tmp_path / "cells.py").write_text("\n".join(cells), "utf-8")
    assert "alignment/on_object" in run(tmp_path, "cells.py")
