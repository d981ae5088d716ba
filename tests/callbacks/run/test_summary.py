"""What a run says at its end: which epochs the best one is among, and the pages or the command that makes them."""

from types import SimpleNamespace

import pytest
import torch
from lightning import Trainer
from torch import nn

from protometry.callbacks import RunCheckpoint
from protometry.callbacks.run.summary import RunSummary, _faster
from protometry.lightning_modules.phases import Phase, PhasePlan
from protometry.run_folder.lock import LOCK

TRAINED = {"trainable": {"head": 1e-4}, "losses": {}, "bn": "eval"}
WARM = Phase("warm", 1, {"prototypes": 1e-3}, {})
LAST, PRUNED = (Phase(name, 1, selectable=True, **TRAINED) for name in ("last", "pruned"))
PROJECTED, LATER = (Phase(name, 1, on_enter=("project",), selectable=True, **TRAINED) for name in ("last", "later"))


def said(folder, capsys, phases=(PROJECTED,), epochs=1, evaluated=None, model=None, resumed_after=0):
    """The lines at the end of a run of some epochs in a folder."""
    checkpoint = RunCheckpoint()
    checkpoint.best_score = 0.34
    (path := folder / "a run" / "checkpoints" / "best.ckpt").parent.mkdir(parents=True)
    path.touch()
    trainer = Trainer(logger=False, callbacks=[checkpoint], accelerator="cpu", default_root_dir=folder / "a run")
    trainer.fit_loop.epoch_progress.current.completed = epochs
    hparams = {"_class_path": model}
    trainer.strategy._lightning_module = SimpleNamespace(phases=lambda: PhasePlan(phases), hparams=hparams)
    summary = RunSummary()
    summary._first = resumed_after
    summary.say_end(trainer, evaluated)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("phases", "among"), [
    ((PROJECTED,), ""),
    ((WARM, PROJECTED), " among the epochs after projection (phase last)"),
    ((WARM, PROJECTED, PRUNED), " among the epochs after projection (phases last, pruned)"),
    ((WARM, LAST), " among the epochs of phase last"),
    ((WARM, LAST, LATER), " among the epochs of phases last, later"),
])  # fmt: skip
def test_the_best_epoch_is_among_those_that_may_be_selected(phases, among, tmp_path, capsys):
    lines = said(tmp_path, capsys, phases, len(phases))
    assert lines[0].startswith(f"Trained {len(phases)} epoch{'s' if len(phases) > 1 else ''} in 0 min")
    assert lines[1] == f"validation  general/accuracy 34 % at best{among}"


@pytest.mark.parametrize(("can", "kind", "precision", "layer", "advised"), [
    ({"amx_bf16": True}, "cpu", "32-true", nn.Conv2d(4, 4, 1), True),
    ({"avx512_bf16": True}, "cpu", "32-true", nn.Conv2d(4, 4, 1), True),
    ({"avx2": True}, "cpu", "32-true", nn.Conv2d(4, 4, 1), False),
    ({"amx_bf16": True}, "cuda", "32-true", nn.Conv2d(4, 4, 1), False),
    ({"amx_bf16": True}, "cpu", "bf16-mixed", nn.Conv2d(4, 4, 1), False),
    ({"amx_bf16": True}, "cpu", "32-true", nn.Conv2d(4, 4, 1, groups=4), False),
])  # fmt: skip
def test_half_precision_is_advised_where_it_is_faster(can, kind, precision, layer, advised, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: can, raising=False)
    trainer = SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device(kind)), precision=precision)
    assert any("bf16-mixed" in line for line in _faster(trainer, nn.Sequential(layer))) == advised


def test_a_resumed_run_counts_its_own_epochs(tmp_path, capsys):
    assert said(tmp_path, capsys, epochs=5, resumed_after=2)[0].startswith("Trained 3 epochs ")


def test_only_what_exists_is_named(tmp_path, capsys):
    checkpoint = RunCheckpoint()
    checkpoint.best_score = 0.34  # of the run that it was started from
    (tmp_path / LOCK).touch()
    trainer = Trainer(logger=False, callbacks=[checkpoint], accelerator="cpu", default_root_dir=tmp_path)
    RunSummary().say_end(trainer, None)
    assert capsys.readouterr().out == "Trained 0 epochs in 0 min 00 s.\n"


def test_the_last_line_is_for_pages(tmp_path, capsys):
    result = {"explainer": "prp", "split": "test", "metrics": {"general/accuracy": {"value": 0.985, "n": 1}}}
    path = f"'{tmp_path}/{{}}/a run/checkpoints/best.ckpt'"
    *_, command = said(tmp_path / "1", capsys)
    assert command == f"evaluate    python evaluate.py run --ckpt_path {path.format(1)}"
    *lines, command = said(tmp_path / "2", capsys, evaluated=(result, tmp_path))  # its pages were not written
    assert "test        general/accuracy 98.5 % on 1 image" in lines
    assert command == f"pages       python evaluate.py report --ckpt_path {path.format(2)}"
    *_, last = said(tmp_path / "3", capsys, evaluated=(result | {"explainer": None}, tmp_path))
    assert last.startswith("run folder")
    *_, command = said(tmp_path / "4", capsys, model="my_package.Model")
    assert command == f"evaluate    python evaluate.py run --ckpt_path {path.format(4)} --allow_classes my_package"
