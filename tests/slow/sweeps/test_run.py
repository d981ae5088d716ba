import signal

import pytest

from tests.sweeps.test_run import assert_a_stopped_sweep_goes_on


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_stopped_sweep_ends_its_runs_and_goes_on(number, sweep, tmp_path, capsys):
    assert_a_stopped_sweep_goes_on(number, sweep, tmp_path, capsys)
