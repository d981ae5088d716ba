"""Runs of a sweep: what is missing is trained, what was killed continues, failures stop nothing, what is done stays."""

import json
import signal
from pathlib import Path

import pytest
import yaml

from protometry.sweeps.__main__ import main
from tests.evaluation.explained.evaluated import content
from tests.sweeps import stand_in

# a training that writes its settings, then a checkpoint, which tests wait for, and an evaluation
TRAINER = """
import json
with (folder / "calls.txt").open("a") as calls:
    calls.write(settings.get("ckpt_path", "fresh") + "\\n")
if settings.get("ignores") == "SIGTERM":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if settings.get("fails") == "early":
    raise ValueError("no such luck at all")
settings.pop("ckpt_path", None)
(folder / "config.yaml").write_text(yaml.safe_dump(settings))
(folder / "checkpoints").mkdir(exist_ok=True)
(folder / "checkpoints" / "last.ckpt").touch()
print("phase joint 1/2 · epoch 1/2 · < 1 min left", flush=True)
if settings.get("fails") == "yes":
    raise ValueError("no such luck")
if settings.get("fails") == "killed":
    os.kill(os.getpid(), 9)
if file := settings.get("edits"):
    pathlib.Path(file).write_text("a: edited")
began = time.monotonic()
while settings.get("waits") == "yes" and not (runs / "go").exists() and time.monotonic() < began + 60:
    time.sleep(0.02)
(folder / "evaluation").mkdir()
result = json.loads((runs / "result.json").read_text())
(folder / "evaluation" / "metrics.json").write_text(json.dumps(result | {"seed": int(settings["seed_everything"])}))
"""


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """Writes the file of a sweep and gives the words of the command that runs it."""
    stand_in.install(monkeypatch, tmp_path, TRAINER)
    (tmp_path / "runs").mkdir()
    result = content({"general/accuracy": 0.5}, fold=None)
    (tmp_path / "runs" / "result.json").write_text(json.dumps(result))
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


def checkpoints(folder, *names):
    return [folder / "runs" / "s" / name / "checkpoints" / "last.ckpt" for name in names]


def assert_a_stopped_sweep_goes_on(number, sweep, tmp_path, capsys):
    words = sweep(a={"--waits": "yes"})
    process = stand_in.start(tmp_path, [*words, "--jobs", "2"])
    last = checkpoints(tmp_path, "a-seed0", "a-seed1")
    stand_in.wait_for(lambda: all(map(Path.exists, last)), process)
    process.send_signal(number)
    _, error = process.communicate()
    assert process.returncode == 128 + number
    assert "stopping a-seed0 (process" in error
    assert error.endswith("The same command resumes it.\n")
    main([*words, "--dry_run"])
    assert capsys.readouterr().out.count("--ckpt_path last") == 2
    (tmp_path / "runs" / "go").touch()
    main(words)
    assert calls(tmp_path, "a-seed1") == ["fresh", "last"]


def test_a_stopped_sweep_ends_its_runs_and_goes_on(sweep, tmp_path, capsys):
    assert_a_stopped_sweep_goes_on(signal.SIGINT, sweep, tmp_path, capsys)


def test_changed_settings_are_refused(sweep, tmp_path):
    main(sweep(a={"--lr": 1, "data.root": "here"}))
    main(sweep(a={"--lr": 1, "data.root": "there"}))  # where data lie changes no result
    with pytest.raises(ValueError, match=r"a-seed0 to have the settings .* lr: '1' in the run, '2' requested. Rename"):
        main([*sweep(a={"--lr": 2, "data.root": "here"}), "--only", "a-seed1"])  # tables average over both
    (tmp_path / "config.yaml").write_text("a: 2")
    with pytest.raises(ValueError, match="a: 1 in the run, 2 requested"):
        main(sweep(a={"--lr": 1, "data.root": "here"}))


def test_settings_are_fixed_when_a_sweep_starts(sweep, tmp_path):
    words = sweep(a={"edits": str(tmp_path / "config.yaml")})
    main(words)
    written = [yaml.safe_load((tmp_path / "runs" / "s" / f"a-seed{k}" / "config.yaml").read_text()) for k in (0, 1)]
    assert [each["a"] for each in written] == [1, 1]
    with pytest.raises(ValueError, match="a: 1 in the run, 'edited' requested"):
        main(words)


def test_a_training_that_outlived_its_sweep_is_waited_for(sweep, tmp_path):
    words = [*sweep(a={"--waits": "yes"}), "--only", "a-seed0"]
    first = stand_in.start(tmp_path, words)
    stand_in.wait_for(checkpoints(tmp_path, "a-seed0")[0].exists, first)
    first.kill()
    first.communicate()
    second = stand_in.start(tmp_path, words)
    stand_in.wait_for(lambda: "a-seed0 is under way elsewhere" in second.stdout.readline(), second)
    (tmp_path / "runs" / "go").touch()
    assert "done: ['a-seed0']" in second.communicate()[0]
    assert calls(tmp_path, "a-seed0") == ["fresh"]


def test_a_folder_that_cannot_be_used_fails_its_run_only(sweep, tmp_path, capsys):
    words = sweep(a={}, b={}, c={})
    folder = tmp_path / "runs" / "s"
    folder.mkdir()
    (folder / "a-seed1").touch()
    (folder / "b-seed0").symlink_to("nowhere")
    with pytest.raises(SystemExit, match="1"):
        main(words)
    out = capsys.readouterr().out
    assert "a-seed1 failed: [Errno 17] File exists" in out
    assert "b-seed0 failed: [Errno 17] File exists" in out
    assert "test split, 4 runs" in out


def test_a_start_that_failed_does_not_block_the_corrected_file(sweep, tmp_path):
    with pytest.raises(SystemExit, match="1"):
        main(sweep(a={"--fails": "early"}))
    main(sweep(a={"--fails": "no"}))
    assert calls(tmp_path, "a-seed0") == ["fresh", "fresh"]


def test_a_run_of_somebody_else_is_refused(sweep, tmp_path):
    (tmp_path / "runs" / "s" / "a-seed0" / "evaluation").mkdir(parents=True)
    (tmp_path / "runs" / "s" / "a-seed0" / "evaluation" / "metrics.json").touch()
    with pytest.raises(ValueError, match=r"a-seed0 to be free or a run of this sweep, but it lacks config.yaml"):
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
