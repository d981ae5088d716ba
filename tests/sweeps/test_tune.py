"""A tuning: trials that end, are pruned, fail or are killed, and the command of the best one."""

import csv
import math
import shlex

import pytest
import yaml

from protometry.sweeps import tune as tuner
from protometry.sweeps.__main__ import main
from protometry.sweeps.sweep import Run
from tests.sweeps import stand_in

# a training in which the accuracy of every epoch is 1 - (x - 3)^2 / 100; x = 9 fails
TRAINER = """
x = float(settings["x"])
if x == 9:
    raise ValueError(settings.get("luck", "no such luck"))
(folder / "checkpoints").mkdir(exist_ok=True)
(folder / "checkpoints" / "last.ckpt").touch()
if file := settings.get("edits"):
    pathlib.Path(file).write_text("a: edited")
print(words, settings.get("a"))
with (folder / "metrics.csv").open("w") as table:
    table.write("epoch,val/general/accuracy\\n")
    for epoch in range(3):
        table.write(f"{epoch},{'nan' if settings.get('nan') else 1 - (x - 3) ** 2 / 100}\\n")
        table.flush()
        time.sleep(float(settings["seconds"]))
"""


@pytest.fixture
def tuning(tmp_path, monkeypatch):
    """Writes the file of a tuning and gives the words of its command."""
    pytest.importorskip("optuna")
    stand_in.install(monkeypatch, tmp_path, TRAINER)
    (tmp_path / "config.yaml").write_text("a: 1")
    monkeypatch.setattr(tuner, "SECONDS_BETWEEN_LOOKS", 0.05)
    monkeypatch.setattr(tuner, "_score", lambda run: tuner._accuracies(run)[-1][1])

    def write(low=0, high=8, seconds=0.0, **more):
        space = {"x": {"flags": "x", "low": low, "high": high} | {k: more.pop(k) for k in ("log", "step") if k in more}}
        content = {"name": "t", "config": str(tmp_path / "config.yaml"), "space": space, "seconds": seconds} | more
        file = tmp_path / "tuning.yaml"
        file.write_text(yaml.safe_dump(content))
        return ["tune", str(file), "--runs", str(tmp_path / "runs")]

    return write


def trials(folder):
    with (folder / "runs" / "t" / "trials.csv").open() as file:
        return list(csv.DictReader(file))


def test_the_best_trial_is_found_and_its_command_printed(tuning, tmp_path, capsys):
    main([*tuning(trials=12), "--seed", "1"])
    *_, said, command = capsys.readouterr().out.splitlines()
    rows = trials(tmp_path)
    assert len(rows) == 12
    best = max(rows, key=lambda row: float(row["value"]))
    assert float(best["value"]) == 1 - (int(best["x"]) - 3) ** 2 / 100  # the planted optimum
    assert abs(int(best["x"]) - 3) <= 1
    assert f"best validation accuracy {100 * float(best['value']):.2f} %, {best['run']}" in said
    words = shlex.split(command)
    assert words[words.index("--x") + 1] == best["x"]
    assert words[words.index("--experiment") + 1] == "t/best"
    assert words[words.index("--test_after_fit") + 1] == "true"
    assert "--test_after_fit false" in (tmp_path / "runs" / "t" / "trial000" / "train.log").read_text()
    main([*tuning(trials=12), "--seed", "1"])  # nothing is left
    assert trials(tmp_path) == rows


def test_the_score_is_that_of_the_checkpoint_that_would_be_evaluated(tmp_path, monkeypatch):
    epochs = {"best.ckpt": 1, "last.ckpt": 2}
    read = "protometry.run_folder.checkpoint_file.read_checkpoint"
    monkeypatch.setattr(read, lambda file, mmap: {"epoch": epochs[file.name]})
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "metrics.csv").write_text("epoch,val/general/accuracy\n0,0.9\n1,0.5\n")
    run = Run("x", tmp_path, ())
    assert math.isnan(tuner._score(run))  # the last epoch was not validated
    (tmp_path / "checkpoints" / "best.ckpt").touch()
    assert tuner._score(run) == 0.5


def test_a_poor_trial_is_pruned(tuning, tmp_path, monkeypatch):
    import optuna

    monkeypatch.setattr(tuner, "BEFORE_PRUNING", 1)
    random = optuna.samplers.RandomSampler()
    planned = [optuna.samplers.PartialFixedSampler({"x": x}, random) for x in (8, 3)]
    monkeypatch.setattr(optuna.samplers, "TPESampler", lambda seed=None: random if seed is None else planned.pop())
    for number in ("1", "2"):  # each with the next sampler
        main([*tuning(seconds=0.3, prune={"after": 0, "every": 1}), "--trials", number])
    assert [(row["x"], row["state"]) for row in trials(tmp_path)] == [("3", "complete"), ("8", "pruned")]


def test_what_has_changed_is_refused(tuning, tmp_path, capsys):
    words = tuning(trials=1)
    main([*words, "--flags=--data.root here"])
    main([*words, "--flags=--data.root there"])
    for more, said in (
        ({"seconds": 1.0}, "seconds: '0.0' in the run, '1.0' requested"),
        ({"high": 9}, "others. space.x. Restore"),
    ):
        with pytest.raises(ValueError, match=said):
            main([*tuning(**{"trials": 2} | more), "--flags=--data.root here"])


def test_settings_are_fixed_when_a_tuning_starts(tuning, tmp_path, capsys):
    with pytest.raises(ValueError, match="a: 1 in the run, 'edited' requested"):  # and the best command is not printed
        main(tuning(trials=2, edits=str(tmp_path / "config.yaml")))
    out = capsys.readouterr().out
    assert "best validation accuracy" not in out
    assert len(trials(tmp_path)) == 2
    logs = [(tmp_path / "runs" / "t" / f"trial00{k}" / "train.log").read_text() for k in (0, 1)]
    assert all(log.rstrip().endswith(" 1") for log in logs)


@pytest.mark.parametrize("make", [lambda file: file.write_text("no database"), lambda file: file.mkdir()])
def test_a_database_that_is_none(tuning, tmp_path, make):
    words = tuning()
    (tmp_path / "runs" / "t").mkdir(parents=True)
    make(tmp_path / "runs" / "t" / "optuna.db")
    with pytest.raises(ValueError, match=r"optuna.db to hold the trials of a tuning, but"):
        main(words)


def test_the_database_lies_in_the_folder_whatever_its_name(tuning, tmp_path):
    name = "a?b{c} 100%20#é"
    main(tuning(name=name, trials=1))
    assert (tmp_path / "runs" / name / "optuna.db").is_file()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [name]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trials=0"], "Expected argument `trials` to be at least 1, but got 0"),
        (["--seed=-1"], r"Expected argument `seed` to be at least 0 and below 2\^31, but got -1"),
        (["--flags=--x 2"], "Expected argument `flags` to leave out `--x`, which is set for every run"),
        (["--flags='x"], "Expected argument `flags` to be words of a shell, but got .*no closing quotation"),
    ],
)
def test_mistakes_of_a_command(tuning, words, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        main([*tuning(), *words])
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"name": "../x"}, "`name` in .* to name a folder below `--runs`, but got '../x'"),
        ({"space": {}}, "`space`: .*at least 1 item"),
        ({"space": {"x": {"flags": "x", "low": 1}}}, "it lacks `space.x.high`"),
        ({"runs": "here"}, "to leave out `runs`, which is set for every run"),
        ({"config": "nothing.yaml"}, "to be a file, but got nothing.yaml"),
        ({"low": 3, "high": 2}, "`low` of x is 3, above `high`, 2"),
        ({"log": True}, "`low` of x is 0, not above 0 as `log` requires"),
        ({"log": True, "low": 1, "step": 1}, "`step` of x goes with `log: false` only"),
        ({"step": 0}, "`space.x.step.*`: input should be greater than 0, got 0"),
        ({"step": -1}, "`space.x.step.*`: input should be greater than 0, got -1"),
        ({"high": math.nan}, "`space.x.high.*`: input should be .* or equal to -?9007199254740992, got nan"),
        ({"high": math.inf}, "`space.x.high.*`: input should be less than or equal to 9007199254740992, got inf"),
        ({"trials": 0}, "`trials`: input should be greater than or equal to 1, got 0"),
    ],
)
def test_mistakes_of_a_file(tuning, content, said):
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        main(tuning(**content))
