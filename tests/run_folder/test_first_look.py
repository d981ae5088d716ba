"""Help and refusals that need neither torch nor Lightning."""

import subprocess
import sys

import pytest

import evaluate
from run_folder.first_look import look_at
from tests.tiny_runs import ROOT

WITHOUT = """
import runpy, sys
del sys.argv[0]
sys.modules.update(torch=None, lightning=None)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("train.py --help", 0, "    fit                 train a model"),
        ("train.py fot", 2, "invalid choice: 'fot' (choose from 'fit', 'validate', 'test', 'convert')"),
        (
            "train.py fit --config=missing.yaml",
            2,
            "error: Expected argument `config` to be a file, but missing.yaml does",
        ),
        (
            "train.py test --ckpt_path missing",
            2,
            "error: Expected argument `ckpt_path` to be a checkpoint file, but miss",
        ),
        ("evaluate.py run --help", 0, "--trainer.accelerator"),
        ("evaluate.py table --help", 0, "--published"),
        ("evaluate.py run --ckpt_pth x", 2, "error: unrecognized arguments: --ckpt_pth x"),
        ("evaluate.py run --ckpt_path missing --explainer explanations.GradCAM", 2, "but missing does not exist"),
    ],
)
def test_the_command_line_answers_without_torch(command, code, said):
    call = [sys.executable, "-c", WITHOUT, *command.split()]
    result = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == code
    assert said in result.stdout + result.stderr


@pytest.mark.parametrize("more", [["--explainer.relu", "false"], ["--suite", "all"]])
def test_what_only_the_types_know_is_left_to_them(more, monkeypatch):
    words = ["run", "--ckpt_path", str(ROOT / "evaluate.py"), "--explainer", "explanations.GradCAM", *more]
    monkeypatch.setattr(sys, "argv", ["evaluate.py", *words])
    look_at(evaluate.COMMANDS, evaluate.FirstCommandLine)
