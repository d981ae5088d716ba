import os
import signal

import pytest

from protometry.run_folder.lock import LOCK
from protometry.sweeps.__main__ import main
from tests.sweeps import stand_in
from tests.sweeps.test_run import assert_a_stopped_sweep_goes_on, calls, checkpoints


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_stopped_sweep_ends_its_runs_and_goes_on(number, sweep, tmp_path, capsys):
    assert_a_stopped_sweep_goes_on(number, sweep, tmp_path, capsys)


def test_a_run_that_does_not_end_is_named(sweep, tmp_path):
    process = stand_in.start(tmp_path, [*sweep(a={"--waits": "yes", "ignores": "SIGTERM"}), "--only", "a-seed0"])
    stand_in.wait_for(checkpoints(tmp_path, "a-seed0")[0].exists, process)
    number = int((tmp_path / "runs" / "s" / "a-seed0" / LOCK).read_text().split()[1])
    process.send_signal(signal.SIGTERM)
    assert f"stopping a-seed0 (process {number}); another Ctrl-C" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert f"still running: a-seed0 (process {number}); `kill -9" in process.communicate()[1]
    os.kill(number, signal.SIGKILL)


def test_a_run_under_way_elsewhere_is_waited_for(sweep, tmp_path):
    words = sweep(a={"--waits": "yes"}, b={"--x": "{a}"})
    with stand_in.start(tmp_path, words) as first:
        stand_in.wait_for(checkpoints(tmp_path, "a-seed0")[0].exists, first)
        second = stand_in.start(tmp_path, words)
        stand_in.wait_for(lambda: "a-seed0 is under way elsewhere" in second.stdout.readline(), second)
        (tmp_path / "runs" / "go").touch()
        outputs = [process.communicate() for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    assert all("done: ['a-seed0', 'a-seed1', 'b-seed0', 'b-seed1']" in out for out, _ in outputs)
    assert [calls(tmp_path, f"{model}-seed{seed}") for model in "ab" for seed in (0, 1)] == [["fresh"]] * 4


def test_the_settings_of_a_run_under_way_elsewhere_count(sweep, tmp_path):
    first = stand_in.start(tmp_path, [*sweep(a={"--waits": "yes", "--k": 2}), "--only", "a-seed0"])
    file = tmp_path / "runs" / "s" / "a-seed0" / "config.yaml"
    stand_in.wait_for(file.exists, first)
    other = sweep(a={"--waits": "yes", "--k": 1})
    with pytest.raises(ValueError, match="k: '2' in the run, '1' requested"):
        main(other)
    file.rename(tmp_path / "written")  # as in the first moments of a training
    second = stand_in.start(tmp_path, [*other, "--only", "a-seed0"])
    stand_in.wait_for(lambda: "a-seed0 is under way elsewhere" in second.stdout.readline(), second)
    (tmp_path / "written").rename(file)
    out, _ = second.communicate()
    (tmp_path / "runs" / "go").touch()
    first.communicate()
    assert [first.returncode, second.returncode] == [0, 1]
    assert "k: '2' in the run, '1' requested" in out
    assert "done: []" in out  # no numbers of the first
