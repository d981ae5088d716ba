"""Progress in a terminal and elsewhere."""

import io
import re
from contextlib import contextmanager

import pytest
import rich
import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from torch.utils.data import DataLoader, TensorDataset

from protometry.callbacks import Interpretability
from protometry.callbacks.run.progress import PhaseProgressBar
from protometry.lightning_modules.phases import Phase, PhasePlan

PLAN = PhasePlan((Phase("warm", 1, {"head": 0.1}, {}), Phase("joint", 2, {"head": 0.1}, {})))


class Tiny(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)

    def phases(self):
        return PLAN

    def training_step(self, batch, batch_idx):
        loss = self.layer(batch[0]).square().mean()
        self.log("train/loss", loss.detach() * 0 + 0.5, on_step=False, on_epoch=True)
        self.log("train/other", 1.0)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val/general/accuracy", 0.123456 * (self.current_epoch + 1))
        self.log("val/general/ties", 0.5 * (self.current_epoch == 1))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

    def test_step(self, batch, batch_idx):
        pass


class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 5

    def __getitem__(self, index):
        return {"image": torch.zeros(3, 2, 2)}


def evaluate(bar, folder):
    options = {"logger": False, "enable_checkpointing": False, "default_root_dir": folder}
    Trainer(accelerator="cpu", callbacks=[bar], **options).test(
        Tiny(), DataLoader(Images(), batch_size=2), verbose=False
    )


def fit(folder, *callbacks, **options):
    data = DataLoader(TensorDataset(torch.ones(4, 2)), batch_size=2)
    trainer = Trainer(
        accelerator="cpu", max_epochs=3, logger=False, enable_checkpointing=False, enable_model_summary=False,
        callbacks=list(callbacks), default_root_dir=folder, **options,
    )  # fmt: skip
    trainer.fit(Tiny(), data, data)


def on_screen(folder, *callbacks, width=80, often=True, **options):
    """What a terminal of this width has shown of a training."""
    screen = io.StringIO()
    console = {"file": screen, "force_terminal": True, "width": width, "color_system": None}
    bar = PhaseProgressBar(console_kwargs=console)
    if often:
        bar.seconds_between_losses = 0.0
    bar.refresh = lambda hard=True: RichProgressBar.refresh(bar, hard=True)
    try:
        fit(folder, *callbacks, bar, **options)
    finally:
        rich.reconfigure()
    return screen.getvalue()


def test_without_a_terminal_every_epoch_is_one_plain_line(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    fit(tmp_path, PhaseProgressBar())
    lines = capsys.readouterr().out.splitlines()
    assert [re.sub(r"[\d.]+ s", "S", line) for line in lines if line.startswith("phase")] == [
        "phase warm 1/1 · epoch 1/3 · train/loss 0.5 · val/general/accuracy 12.35 % · S · < 1 min left",
        "phase joint 1/2 · epoch 2/3 · train/loss 0.5 · val/general/accuracy 24.69 % · val/general/ties 50 % · S "
        "· < 1 min left",
        "phase joint 2/2 · epoch 3/3 · train/loss 0.5 · val/general/accuracy 37.04 % · S",
    ]
    assert not any("\x1b" in line or "━" in line for line in lines)


@pytest.mark.parametrize("width", [80, 140])
def test_in_a_terminal_the_bar_says_where_the_run_is_in_one_line(tmp_path, capsys, width):
    screen = on_screen(tmp_path, width=width)
    lines = [line.rstrip() for line in re.split(r"[\n\r]|\x1b\[[0-9?]*[A-Za-z]", screen) if line.strip()]
    assert max(map(len, lines)) <= width
    training = [line for line in lines if "epoch" in line]
    assert not any("phase" in line or "…" in line for line in training)
    shown = {re.sub(r" ━.* (?=\d/2)", " ━ ", line) for line in training}
    assert {
        "warm 1/1 · epoch 1/3  loss 0.5  val acc 12.3 %  < 1 min left ━ 2/2",
        "joint 1/2 · epoch 2/3  loss 0.5  val acc 24.7 %  < 1 min left ━ 2/2",
        "joint 2/2 · epoch 3/3  loss 0.5  val acc 37.0 % ━ 2/2",
    } <= shown
    assert "phase" not in capsys.readouterr().out


class Forgets(Callback):
    on_train_epoch_start = Interpretability.on_train_epoch_start


def test_an_accuracy_of_an_earlier_epoch_is_called_the_last_one(tmp_path):
    screen = on_screen(tmp_path, Forgets(), often=False, check_val_every_n_epoch=2)
    shown = re.findall(r"epoch (\d)/3  loss 0.5  ((?:val acc|last val) [\d.]+ %)(?:  < 1 min left)? ━+ 2/2", screen)
    assert set(shown) == {("2", "val acc 24.7 %"), ("3", "last val 24.7 %")}


def test_the_longest_names_fit_into_80_columns(tmp_path, monkeypatch):
    plan = PhasePlan((Phase("full_from_30", 30, {"head": 0.1}, {}), Phase("last", 30, {"head": 0.1}, {})))
    monkeypatch.setattr(Tiny, "phases", lambda _: plan)
    monkeypatch.setattr("protometry.callbacks.run.progress.in_words", lambda _: "59 min left")
    last = r"full_from_30 3/30 · epoch 3/3  loss 0.5  val acc 37.0 %  59 min left ━+ 2/2"
    assert re.search(last, on_screen(tmp_path))


def test_an_evaluation_says_how_fast_it_is(tmp_path, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    begun, steps = [], []

    @contextmanager
    def told(*about):
        begun.append(about)
        yield lambda: steps.append(1)

    monkeypatch.setattr("protometry.callbacks.run.progress.progress", told)
    evaluate(PhaseProgressBar(), tmp_path)
    assert (begun, len(steps)) == ([("Evaluating", 3)], 3)
    screen = io.StringIO()
    options = {"file": screen, "force_terminal": True, "width": 160, "color_system": None}
    try:
        evaluate(PhaseProgressBar(console_kwargs=options), tmp_path)
    finally:
        rich.reconfigure()
    assert re.search(r"Testing  [\d.]+ images/s ━+ 3/3", screen.getvalue())


def test_other_ranks_print_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Trainer, "is_global_zero", False)
    fit(tmp_path, PhaseProgressBar())
    assert "phase" not in capsys.readouterr().out
