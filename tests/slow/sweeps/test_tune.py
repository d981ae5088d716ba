"""A tuning: trials that end, are pruned, fail or are killed, and the command of the best one."""

import os
import resource
import subprocess
import sys
import time

import pytest

from protometry.run_folder.lock import LOCK
from protometry.sweeps import tune as tuner
from protometry.sweeps.__main__ import main
from tests.sweeps import stand_in
from tests.sweeps.test_tune import trials


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
