"""The commands of the README, of ``docs/`` and of the headers of configs, run as printed on small stand-ins.

The commands about the study ``studies/birds`` are run in a clean clone, with models that are trained as printed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.test_commands import MAIN, write_files
from tests.pages import ADD_PAGES, DOCS, PAGES, blocks, run_page
from tests.tiny_runs import ROOT

STUDY = "studies/birds"  # of docs/studies.md


BLOCKS = [
    pytest.param(block["text"], id=f"{path.stem}-{block['text'].split(' --')[0]}")
    for path in PAGES
    for block in blocks(path, "bash")
    if path != DOCS / "studies.md" or STUDY not in block["text"]
]


CODE = [path for path in PAGES if path.name not in ADD_PAGES and [*blocks(path, "python")]]


OWN_IMAGES = ["--data.image_size=96"]
DRAWN = ["--data.train_size=64", "--data.val_size=16"]  # images
SMALLER = {  # a training is run for one batch, an evaluation on a few images
    "train.py fit": "--trainer.fast_dev_run=true --trainer.accelerator=cpu --data.batch_size=32 --runs=trials",
    "evaluate.py run": "--limit=4 --trainer.accelerator=cpu",
    "evaluate.py report": "--limits.images=2 --limits.units=2 --limits.classes=2",
    "evaluate.py compare": "--images=2 --draws=50",
    "audit runs/quickstart": "--images=4",
    "studies build": '--items=1 --assignment={"people":4,"right":1,"wrong":1}',
    "studies simulate": "--number=4",
    "sweeps run": "--dry_run --runs=trials",
}


def calls(block: str, place: Path) -> list[list[str]]:
    """The arguments of ``python`` and ``protometry``, after the shell has seen them; other programs are left out."""
    shown = '"$PYTHON" -S -c "import json, sys; print(json.dumps(sys.argv[1:]))" "$@"'
    say = "".join(f"{name}() {{ {shown}; }}\n" for name in ("python", "protometry"))
    others = "".join(f"{name}() {{ :; }}\n" for name in ("pip", "pytest", "tensorboard"))
    script, known = say + others + block, os.environ | {"PYTHON": sys.executable}
    done = subprocess.run(["bash", "-euc", script], cwd=place, env=known, text=True, check=True, capture_output=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


DONE: list[list[str]] = []  # by an earlier block of this process


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_runs_as_printed(block, place, monkeypatch):
    monkeypatch.chdir(place)
    shutil.rmtree("studies", ignore_errors=True)  # of another block, by the same name
    if "--out model/" in block:
        shutil.rmtree("model", ignore_errors=True)
    for words in calls(block, place):
        if any(name in words and words[words.index(name) + 1] != "0" for name in ("--seed_everything", "--data.fold")):
            continue  # the same with another seed or fold
        words = [word for word in words if word != "--dry_run"]  # which every sweep is
        if words in DONE:
            continue
        DONE.append(words)
        name, command, *rest = words[1:] if words[0] == "-m" else words
        smaller = SMALLER.get(f"{name} {command}", "").split()
        if (name, command) == ("train.py", "fit"):
            smaller += OWN_IMAGES if "--data.root" in rest else DRAWN
        code = MAIN[name]([command, *rest, *smaller])
        assert not isinstance(code, int) or code == 0, words


@pytest.mark.parametrize("page", CODE, ids=lambda page: page.name)
def test_code_runs_as_printed(page, place, monkeypatch):
    monkeypatch.chdir(place)
    run_page(page)


def test_a_study_from_a_clean_clone(tmp_path):
    """From the trainings, which are shortened, to the results; a server is ended after some seconds, as by SIGTERM."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tmp_path / "clone")], check=True)
    write_files(tmp_path / "clone/docs/studies.md", tmp_path / "clone")
    fewer = "--test_after_fit false --model.epoch_scale 0.25 --data.train_size 400 --data.val_size 100"
    fewer += " --explanations.images 1 --explanations.top_k 1 --explanations.units 1"
    short = f'*"train.py fit"*) "$PYTHON" "$@" {fewer};;'
    end = '*" serve "*) timeout -s TERM --preserve-status 6 "$PYTHON" "$@";;'
    run = f'case "$*" in {short} {end} *) "$PYTHON" "$@";; esac'
    known = os.environ | {"PYTHON": sys.executable, "PYTHONPATH": str(tmp_path / "clone")}
    for block in blocks(tmp_path / "clone/docs/studies.md", "bash"):
        if STUDY in block["text"]:
            start = f'pip() {{ :; }}\npython() {{ {run}; }}\nprotometry() {{ python -m protometry "$@"; }}'
            script = f"{start}\n{block['text']}"
            subprocess.run(["bash", "-euc", script], cwd=tmp_path / "clone", env=known, check=True)
    study = tmp_path / "clone" / STUDY
    assert json.loads((study / "simulated/summary.json").read_text("utf-8"))["participants"]["analysed"] == 50
    assert (study / "backup.sqlite").stat().st_mode & 0o777 == 0o600
