"""Runs of a sweep: what is missing is trained, what was killed continues, failures stop nothing, what is done stays."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from sweeps import run as runner
from sweeps.__main__ import main
from tests.reports.evaluated import content

# instead of protometry.py: a training that writes a checkpoint, and an evaluation
TRAINER = """
import json, os, pathlib, sys, time
words = dict(zip(sys.argv[3::2], sys.argv[4::2]))
folder = pathlib.Path(words["--runs"], words["--experiment"])
with (folder / "calls.txt").open("a") as calls:
    calls.write(words.get("--ckpt_path", "fresh") + "\\n")
if words.get("--fails") == "early":
    raise ValueError("no such flag")
(folder / "checkpoints").mkdir(exist_ok=True)
(folder / "checkpoints" / "last.ckpt").touch()
print("phase joint 1/2 · epoch 1/2 · < 1 min left")
if words.get("--fails") == "yes":
    raise ValueError("no such luck")
if words.get("--fails") == "killed":
    os.kill(os.getpid(), 9)
while words.get("--waits") == "yes" and not pathlib.Path(words["--runs"], "go").exists():
    time.sleep(0.02)
(folder / "evaluation").mkdir()
result = json.loads(pathlib.Path(words["--runs"], "result.json").read_text())
(folder / "evaluation" / "metrics.json").write_text(json.dumps(result | {"seed": int(words["--seed_everything"])}))
"""


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """Writes the file of a sweep and gives the words of the command that runs it."""
    (tmp_path / "protometry.py").write_text(TRAINER)
    (tmp_path / "runs").mkdir()
    result = content({"general/accuracy": 0.5}, fold=None)
    (tmp_path / "runs" / "result.json").write_text(json.dumps(result))
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    monkeypatch.setattr(runner, "SECONDS_BETWEEN_LOOKS", 0.01)
    config = tmp_path / "config.yaml"
    config.write_text("a: 1")

    def write(**parts):
        models = {name: {"config": str(config)} | flags for name, flags in parts.items()}
        file = tmp_path / "sweep.yaml"
        file.write_text(yaml.safe_dump({"name": "s", "models": models, "seeds": [0, 1]}))
        return ["run", str(file), "--runs", str(tmp_path / "runs")]

    return write


def calls(folder, run):
    return (folder / "runs" / "s" / run / "calls.txt").read_text().split()


def test_a_sweep_ends_in_the_table_and_a_second_call_does_nothing(sweep, tmp_path, capsys):
    words = sweep(a={}, b={"--x": "{a}"})
    main([*words, "--jobs", "2"])
    out = capsys.readouterr().out
    assert out.startswith("s: 4 runs, 0 done, 0 to resume, 4 to start\n")
    assert "test split, 4 runs" in out
    main(words)
    again = capsys.readouterr().out
    assert again.startswith("s: 4 runs, 4 done, 0 to resume, 0 to start\n\n###")
    assert [calls(tmp_path, name) for name in ("a-seed0", "b-seed1")] == [["fresh"], ["fresh"]]


def test_a_failure_stops_nothing_but_the_runs_that_need_it(sweep, tmp_path, capsys):
    words = sweep(a={"--fails": "yes"}, b={"--x": "{a}"}, c={}, d={"--fails": "killed"})
    with pytest.raises(SystemExit, match="1"):
        main(words)
    out = capsys.readouterr().out
    assert f"a-seed0 failed: ValueError: no such luck\n  {tmp_path}/runs/s/a-seed0/train.log\n" in out
    assert "b-seed1 failed: it needs a-seed1" in out
    assert "d-seed1 failed: killed by SIGKILL; the same command resumes it" in out
    assert "test split, 2 runs" in out  # the table of those that are done
    with pytest.raises(SystemExit, match="1"):
        main(words)
    assert calls(tmp_path, "a-seed0") == ["fresh", "last"]
    assert calls(tmp_path, "c-seed0") == ["fresh"]


def test_a_stopped_sweep_goes_on(sweep, tmp_path, capsys):
    words = sweep(a={"--waits": "yes"})
    go = f"import sys; from sweeps import run; run.ROOT = __import__('pathlib').Path({str(tmp_path)!r}); "
    code = go + f"from sweeps.__main__ import main, from_shell; from_shell(lambda: main({[*words, '--jobs', '2']!r}))"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    last = [tmp_path / "runs" / "s" / f"a-seed{seed}" / "checkpoints" / "last.ckpt" for seed in (0, 1)]
    while not all(map(Path.exists, last)) and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 2
    assert "The same command resumes it." in process.stderr.read()
    (tmp_path / "runs" / "go").touch()
    main([*words, "--dry_run"])
    assert capsys.readouterr().out.count("--ckpt_path last") == 2
    main(words)
    assert calls(tmp_path, "a-seed1") == ["fresh", "last"]


def test_changed_settings_are_refused(sweep, tmp_path):
    main(sweep(a={"--lr": 1, "data.root": "here"}))
    main(sweep(a={"--lr": 1, "data.root": "there"}))  # where data lie changes no result
    with pytest.raises(ValueError, match=r"a-seed0 to continue .* but --lr has changed since. Rename the sweep"):
        main(sweep(a={"--lr": 2, "data.root": "here"}))
    (tmp_path / "config.yaml").write_text("a: 2")
    with pytest.raises(ValueError, match=r"but .*config.yaml has changed since"):
        main(sweep(a={"--lr": 1, "data.root": "here"}))


def test_a_start_that_failed_does_not_block_the_corrected_file(sweep, tmp_path):
    with pytest.raises(SystemExit, match="1"):
        main(sweep(a={"--fails": "early"}))
    main(sweep(a={"--fails": "no"}))
    assert calls(tmp_path, "a-seed0") == ["fresh", "fresh"]


def test_a_run_of_somebody_else_is_refused(sweep, tmp_path):
    (tmp_path / "runs" / "s" / "a-seed0" / "evaluation").mkdir(parents=True)
    (tmp_path / "runs" / "s" / "a-seed0" / "evaluation" / "metrics.json").touch()
    with pytest.raises(ValueError, match="a-seed0 to be free or a run of this sweep, but it holds another"):
        main(sweep(a={}))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "b*"], "to name runs of .*, but got 'b\\*'; they are a-seed0, a-seed1, c-seed0, c-seed1"),
        (["--only", "c-seed1"], "Expected a-seed1, which c-seed1 needs, to be done"),
        (["--jobs", "0"], "`jobs` to be at least 1, but got 0"),
    ],
)
def test_mistakes_of_a_command(sweep, words, said):
    with pytest.raises(ValueError, match=said):
        main([*sweep(a={}, c={"--x": "{a}"}), *words])


def test_only_some(sweep, tmp_path):
    main([*sweep(a={}, c={"--x": "{a}"}), "--only", "a-seed1,*-seed1"])
    assert sorted(path.name for path in (tmp_path / "runs" / "s").iterdir()) == ["a-seed1", "c-seed1"]
