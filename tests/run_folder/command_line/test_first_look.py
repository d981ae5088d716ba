"""Help and refusals that need neither torch nor Lightning."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from protometry.run_folder.command_line.first_look import look_at
from protometry.run_folder.lock import only_process
from protometry.scripts import evaluate
from tests.tiny_runs import ROOT

WITHOUT = """
import contextlib, io, json, runpy, sys
class Refused:
    def find_spec(name, *_):
        if name in ("torch", "lightning"):
            raise ImportError(name)
sys.meta_path.insert(0, Refused)
for words in json.loads(sys.argv[1]):
    sys.argv, said, code = words, io.StringIO(), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            runpy.run_path(words[0], run_name="__main__")
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, said.getvalue()]))
"""
OPEN = ("model: [1, 2\ndata: {a: b\n", "bad.yaml, line 1, column 8 did not find expected")
TWICE = ("runs: a\nruns: b\n", "bad.yaml, line 2, column 1")


def answers(commands):
    """Exit codes and output of commands, one by one in a process without torch."""
    call = [sys.executable, "-c", WITHOUT, json.dumps(commands)]
    result = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_command_line_answers_without_torch():
    cases = [
        ("train.py --help", 0, "    fit                 train a model"),
        ("train.py fot", 2, "invalid choice: 'fot' (choose from 'fit', 'validate', 'test', 'convert')"),
        ("train.py fit --config=missing.yaml", 2, "error: Expected argument `config` to be a file, but missing.yaml"),
        ("train.py test --ckpt_path missing", 2, "error: Expected argument `ckpt_path` to be a checkpoint file, but m"),
        ("train.py test --ckpt_path=~/missing", 2, f"a checkpoint file, but {Path.home()}/missing does not exist"),
        ("evaluate.py table ~/missing", 2, f"to be a file or folder, but {Path.home()}/missing does not exist"),
        ("train.py fit --experiment=new --ckpt_path last", 2, "runs/new/checkpoints/last.ckpt to resume from, but it"),
        ("protometry/__main__.py --version", 0, "protometry 0."),
        ("protometry/__main__.py trian", 2, "but got 'trian'. Did you mean 'train'?"),
        ("evaluate.py run --help", 0, "--trainer.accelerator"),
        ("evaluate.py table --help", 0, "--published"),
        ("evaluate.py run --ckpt_pth x", 2, "error: unrecognized arguments: --ckpt_pth x"),
        ("evaluate.py run --ckpt_path missing --explainer GradCAM", 2, "but missing does not exist"),
        ("evaluate.py table missing", 2, "error: Expected argument `runs` to be a file or folder, but missing does"),
        (f"evaluate.py table {'long' * 99}", 2, "error: [Errno 36] File name too long"),
        ("sweeps/__main__.py run missing.yaml", 2, "error: [Errno 2] No such file or directory: 'missing.yaml'"),
        ("studies/__main__.py analyse missing", 2, "error: Expected missing to be a study, but study.json is missing."),
    ]
    for (command, *expected), (code, text) in zip(cases, answers([c.split() for c, *_ in cases]), strict=True):
        assert code == expected[0], command
        assert expected[1] in text, command


def test_a_file_that_is_not_yaml_is_refused_at_once(tmp_path):
    cases = [
        ("train.py fit --config", *OPEN),
        ("train.py fit --config", *TWICE),
        ("sweeps/__main__.py run", *OPEN),
        ("sweeps/__main__.py tune", *TWICE),
    ]
    commands = []
    for index, (command, text, _) in enumerate(cases):
        (tmp_path / f"{index}").mkdir()
        (tmp_path / f"{index}" / "bad.yaml").write_text(text)
        commands.append([*command.split(), str(tmp_path / f"{index}" / "bad.yaml")])
    for (command, _, expected), (code, text) in zip(cases, answers(commands), strict=True):
        assert code == 2, command
        assert expected in text, command


def test_a_folder_that_is_taken_is_refused_at_once(tmp_path):
    for name in ("begun/checkpoints/last.ckpt", "left/metrics.csv", "done/checkpoints/last.ckpt", "own.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("experiment: begun\n")
    (tmp_path / "done" / "evaluation").mkdir()
    (tmp_path / "done" / "evaluation" / "metrics.json").write_text('{"training": {"complete": true}}')
    with only_process(tmp_path / "locked"):
        cases = [
            (["--config", str(tmp_path / "own.yaml")], "error: Expected a folder without a run, but "),
            (["--experiment", "left"], "left holds metrics.csv"),
            (["--experiment", "locked"], "error: Expected no other process in "),
        ]
        said = answers([["train.py", "fit", "--runs", str(tmp_path), *words] for words, _ in cases])
        for (words, expected), (code, text) in zip(cases, said, strict=True):
            assert (code, expected in text) == (2, True), (words, text)
    with pytest.raises(subprocess.CalledProcessError):  # torch is needed to see whether the settings have changed
        answers([["train.py", "fit", "--runs", str(tmp_path), "--experiment", "done"]])


EXPLAINED = ["run", "--ckpt_path", str(ROOT / "evaluate.py"), "--explainer", "protometry.explanations.GradCAM"]


@pytest.mark.parametrize(
    "words",
    [[*EXPLAINED, "--explainer.relu", "false"], [*EXPLAINED, "--suite", "all"], ["table", str(ROOT / "conf*")]],
)
def test_what_only_the_command_knows_is_left_to_it(words, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["evaluate.py", *words])
    look_at(evaluate.COMMANDS, evaluate.FirstCommandLine)
