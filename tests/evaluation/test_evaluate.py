"""Failures after an evaluation is complete."""

import errno
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from lightning import Trainer

import protometry
from protometry.evaluation import evaluate
from protometry.evaluation.trainer import quiet_trainer


def test_a_full_disk_during_the_pages_names_file_and_command(monkeypatch, tmp_path):
    def fills_the_disk(*_):
        raise OSError(errno.ENOSPC, "No space left", "index.html")

    monkeypatch.setattr(evaluate, "read_evaluation", lambda folder: None)
    monkeypatch.setattr(evaluate, "build_report", fills_the_disk)
    monkeypatch.setattr(evaluate, "evaluation_mode", lambda model: nullcontext())
    explained = SimpleNamespace(model=None)
    result = SimpleNamespace(no_pages=None, result={"explainer": "prp"}, explained=explained)
    with pytest.raises(
        OSError, match=r"left: 'index.html'\); .*metrics.json is complete.*report --ckpt_path a.ckpt"
    ) as raised:
        evaluate._write_pages(result, tmp_path, Path("a.ckpt"))
    assert raised.value.errno is None  # no other remedy is added


@pytest.mark.parametrize("bar", [True, False])
def test_an_evaluation_after_training_shows_a_bar_where_the_training_did(bar, tmp_path):
    hardware = evaluate._hardware(Trainer(accelerator="cpu", logger=False, enable_progress_bar=bar))
    assert (quiet_trainer(hardware, tmp_path).progress_bar_callback is not None) == bar


def test_the_function_returns_the_content_of_the_result(monkeypatch):
    monkeypatch.setattr(evaluate, "evaluate", lambda request, hardware, **files: ({"limit": request.limit}, Path("x")))
    assert protometry.evaluate("runs/a/checkpoints/last.ckpt", limit=3) == {"limit": 3}
