"""Weights & Biases: one run over resumptions, offline without credentials, and its id in checkpoints."""

import socket

import pytest
import wandb

from protometry.callbacks.run.wandb_logger import RunWandbLogger
from tests.wandb_files import segments


@pytest.mark.parametrize("listening", [True, False], ids=["silent server", "no server"])
def test_a_run_whose_server_does_not_answer_goes_on_offline(offline, monkeypatch, listening):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listening:
            server.listen()
        for name, value in (("API_KEY", "a" * 40), ("BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}")):
            monkeypatch.setenv(f"WANDB_{name}", value)
        monkeypatch.delenv("WANDB_MODE")
        monkeypatch.setenv("WANDB_INIT_TIMEOUT", "2")
        wandb.teardown()
        logger = RunWandbLogger(str(offline), run_id="abc")
        with pytest.warns(UserWarning, match=r"W&B does not answer \(\w+: .*\): the run is logged offline"):
            logger.log_metrics({"loss": 0.5}, 3)
        logger.finalize("success")
        assert not logger.failed
        assert logger.is_offline
    (segment,) = segments(offline)
    assert segment.run.run_id == "abc"
    assert [row["loss"] for row in segment.history] == [0.5]
