"""A tuning: trials that end, are pruned, fail or are killed, and the command of the best one."""

import os
import resource
import subprocess
import sys
import time

import pytest

from protometry.run_folder.lock import LOCK
from protometry.scripts import train
from protometry.sweeps import tune as tuner
from protometry.sweeps.__main__ import main
from protometry.sweeps.tune import read_tuning
from tests.sweeps import stand_in
from tests.sweeps.test_tune import trials
from tests.tiny_runs import ROOT


@pytest.mark.parametrize("room", [0, 200_000])  # bytes; an empty database takes 100,000
def test_a_full_disk_is_said_and_the_tuning_continues_with_room(room, tuning, monkeypatch):
    words, before = tuning(trials=2), resource.getrlimit(resource.RLIMIT_FSIZE)
    asked = tuner._trials
    monkeypatch.setattr(tuner, "_trials", lambda study: resource.setrlimit(limit, (4096, before[1])) or asked(study))
    limit = resource.RLIMIT_FSIZE
    if not room:
        resource.setrlimit(limit, (4096, before[1]))
    try:
        with pytest.raises(OSError, match=r"No space left on device: .*optuna\.db"):
            main(words)
    finally:
        resource.setrlimit(limit, before)
    monkeypatch.setattr(tuner, "_trials", asked)
    main(words)


def test_a_killed_trial_is_tried_again_in_its_run(tuning, tmp_path):
    words = [*tuning(seconds=2.0, trials=1)]
    process = stand_in.start(tmp_path, words)
    run = tmp_path / "runs" / "t" / "trial000"
    stand_in.wait_for((run / "metrics.csv").exists, process)
    process.kill()
    process.communicate()
    time.sleep(0.1)
    os.kill(int((run / LOCK).read_text().split()[1]), 9)
    hold = f"import fcntl; file = open({str(run / LOCK)!r}, 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print(); input()"
    with subprocess.Popen([sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as outlived:
        outlived.stdout.readline()
        with pytest.raises(ValueError, match=r"Expected no other process in .*trial000, but .* Wait until it ends"):
            main(words)
        outlived.communicate(b"\n")
    main(words)
    assert [row["run"] for row in trials(tmp_path)] == ["trial000"]
    assert (run / "train.log").read_text().count("--ckpt_path last") == 1


def test_a_trial_without_room_on_the_disk_is_tried_again(tuning, tmp_path):
    for _ in range(2):
        with pytest.raises(OSError, match=r"No space left on device: .*trial000"):
            main(tuning(low=9, high=9, trials=1, luck="No space left on device"))


def test_trials_that_fail(tuning, tmp_path, capsys):
    with pytest.raises(ValueError, match=r"(?s)the first 3 failed: ValueError: no such luck \(.*trial002/train.log\)"):
        main(tuning(low=9, high=9))
    assert "1/50  trial000  failed: ValueError: no such luck" in capsys.readouterr().out
    with pytest.raises(ValueError, match="the first 3 failed: its validation accuracy is not a number"):
        main(tuning(name="other", nan="yes"))


@pytest.mark.parametrize("file", sorted((ROOT / "configs" / "sweep").glob("tune_*.yaml")), ids=lambda file: file.stem)
def test_the_published_spaces(file, monkeypatch):
    monkeypatch.chdir(ROOT)
    tuning = read_tuning(file.relative_to(ROOT))
    assert f"# protometry sweeps tune {file.relative_to(ROOT)} " in file.read_text().splitlines()[0]
    assert tuning.asked.trials == 50
    rates = [one for one in tuning.asked.space.values() if one.log]
    assert {(one.low, one.high) for one in rates} <= {(1e-5, 3e-3), (1e-3, 1e-1)}
    words = tuning.run("x", {name: one.low for name, one in tuning.asked.space.items()}).fit_arguments(resume=False)
    collected = {}
    monkeypatch.setattr(
        train.TrainCLI, "before_instantiate_classes", lambda cli: collected.update(cli=cli) or sys.exit(0)
    )
    with pytest.raises(SystemExit, match="0"):  # all of its flags are known
        train.main([*words, "--data.root=DIR", "--trainer.accelerator=cpu"])
    phases = collected["cli"].config.fit.model.init_args.phases
    assert phases["joint"]["scheduler"]["kwargs"]["step_size"] == 15
    assert phases["joint"]["trainable"]["backbone"] == 1e-5
