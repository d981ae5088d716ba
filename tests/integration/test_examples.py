"""The scripts and the notebook in ``examples/`` run as they are, each in an empty folder, and say what they promise."""

import json
import multiprocessing
import os
import runpy
import sys

import pytest

from tests.tiny_runs import ROOT, fit_learning

FORK = multiprocessing.get_context("fork")  # a process that has imported everything
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
    """What a script prints, in an empty folder."""
    (folder / "empty").mkdir()
    process = FORK.Process(target=run_script, args=(folder, command))
    process.start()
    process.join()
    assert process.exitcode == 0
    return (folder / "printed.txt").read_text("utf-8")


def run_script(folder, command):
    os.chdir(folder / "empty")
    sys.argv = list(command)
    with open(folder / "printed.txt", "w", encoding="utf-8") as sys.stdout:
        runpy.run_path(command[0], run_name="__main__")


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
    assert "alignment/on_object" in run(tmp_path, str(tmp_path / "cells.py"))
