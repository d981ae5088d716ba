"""Runs that are killed between two changes of files, or start twice, lose nothing and spoil nothing."""

import multiprocessing
import os
import signal
import time
from functools import partial

import pytest

from protometry.run_folder.lock import only_process
from tests.tiny_runs import fit, run_evaluation

FORK = multiprocessing.get_context("fork")  # a process that has imported everything


def hold(folder, worker, held):
    """Hold a folder until killed; a worker lives on."""
    with only_process(folder):
        if pid := os.fork():
            worker.value = pid
            held.set()
        time.sleep(60)


def test_a_second_process_ends_before_it_starts_anything(run_copy, monkeypatch):
    worker, evaluation = FORK.Value("i", 0), run_copy / "evaluation"
    again = partial(fit, run_copy, "--ckpt_path", "last", "--trainer.logger=protometry.callbacks.RunWandbLogger")
    for folder, start in ((run_copy, again), (evaluation, partial(run_evaluation, run_copy))):
        held = FORK.Event()
        process = FORK.Process(target=hold, args=(folder, worker, held))
        process.start()
        held.wait()
        message = f"Expected no other process in {folder}, but process {process.pid} on .* is using it"
        with pytest.raises(ValueError, match=message):
            start()
        monkeypatch.setenv("LOCAL_RANK", "1")
        with only_process(folder):  # held by rank zero of the same run
            pass
        monkeypatch.delenv("LOCAL_RANK")
        process.kill()
        process.join()
        with only_process(folder):
            pass
        os.kill(worker.value, signal.SIGKILL)
    assert not (run_copy / "wandb").exists()
    assert list(evaluation.iterdir()) == []
