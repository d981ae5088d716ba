"""The figure of a training."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from protometry.callbacks.run.training_curves import COMPARED, HEIGHT, WIDTH, TrainingCurves, training_curves
from protometry.explanations.charts import to_picture
from protometry.lightning_modules.phases import Phase, PhasePlan


def rows(*losses, **keys):
    return [{"phase": "warm" if i < 2 else "joint", "train/loss": loss, **keys} for i, loss in enumerate(losses)]


def plotted(figure):
    """Name -> title of the panel and values of a curve, and where phases begin in each panel."""
    curves, starts = {}, []
    for axes in figure.axes:
        named = [line for line in axes.lines if not line.get_label().startswith("_")]
        curves |= {(axes.get_ylabel(), line.get_label()): line.get_xydata().tolist() for line in named}
        starts.append([line.get_xdata()[0] for line in axes.lines if line not in named])
    return curves, starts


def test_curves_go_through_their_values_and_phases_begin_at_lines():
    figure = training_curves(rows(4.0, 2.0, 3.0, 1.0))
    curves, starts = plotted(figure)
    assert curves == {("loss", "training"): [[1, 4.0], [2, 2.0], [3, 3.0], [4, 1.0]]}
    assert starts == [[0, 2]]  # warm from 0, joint from the end of epoch 2
    assert [text.get_text().strip() for text in figure.axes[0].texts] == ["warm", "joint"]
    assert to_picture(figure).size == (WIDTH, HEIGHT)


def test_values_that_are_missing_or_not_finite_leave_gaps():
    both = training_curves(rows(4.0, math.inf, 3.0, 1.0, **{"train/accuracy": 0.5}))
    curves, _ = plotted(both)
    assert np.isnan(curves["loss", "training"][1][1])
    assert curves["accuracy in %", "training"] == [[epoch, 50.0] for epoch in (1, 2, 3, 4)]
    assert ("accuracy in %", "validation") not in curves
    assert to_picture(both).size == (2 * WIDTH, HEIGHT)
    compared = training_curves(rows(4.0, 2.0, **{"train/accuracy": 0.5, "val/general/accuracy": 0.6}))
    labels = [axes.get_xlabel() for figure in (both, compared) for axes in figure.axes]
    assert [COMPARED in label for label in labels] == [False, False, False, True]
    (only,) = plotted(training_curves([{"phase": "a", "val/general/accuracy": 1.0}]))[0]
    assert only == ("accuracy in %", "validation")


def test_pictures_are_the_same_every_time_and_take_constant_curves_and_long_names():
    wide = [{"phase": "a phase " * 20, "train/loss": 2.0}, {"phase": "b", "train/loss": 2.0}]
    one, other = (to_picture(training_curves(wide)).tobytes() for _ in range(2))
    assert one == other
    assert training_curves(wide).axes[0].texts[0].get_text().endswith("…")
    assert plotted(training_curves([{"phase": "a"}])) == ({}, [[]])
    with pytest.raises(ValueError, match="`rows` to hold at least one epoch, but got none"):
        training_curves([])


def test_a_checkpoint_holds_the_epochs_so_far():
    first, second = TrainingCurves(), TrainingCurves()
    first.rows = rows(1.0, 2.0)
    second.load_state_dict(first.state_dict())
    assert second.rows == first.rows


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_a_picture_that_cannot_be_drawn_ends_no_training(tmp_path):
    curves, plan = TrainingCurves(), PhasePlan((Phase("warm", 9, {"head": 0.1}, {}),))
    curves.rows = rows(1.7e308)
    trainer = SimpleNamespace(
        callback_metrics={"train/loss": torch.tensor(-1.7e308, dtype=torch.float64)},
        **{"current_epoch": 1, "is_global_zero": True, "fast_dev_run": False, "default_root_dir": tmp_path},
    )
    with pytest.warns(UserWarning, match="No curves of the training: they could not be drawn or written .Singular"):
        curves.on_train_epoch_end(trainer, SimpleNamespace(phases=lambda: plan))
    assert curves.rows == rows(1.7e308, -1.7e308)


def test_the_first_epoch_is_drawn_then_few_and_the_last_whether_the_training_ends_or_fails(tmp_path, monkeypatch):
    now, drawn = [0.0], []
    monkeypatch.setattr("protometry.callbacks.run.training_curves.time.monotonic", lambda: now[0])
    monkeypatch.setattr("protometry.callbacks.run.training_curves.write_atomic", lambda *_: drawn.append(curves.rows))
    curves, plan = TrainingCurves(), PhasePlan((Phase("warm", 9, {"head": 0.1}, {}),))
    trainer = SimpleNamespace(callback_metrics={}, is_global_zero=True, fast_dev_run=False, default_root_dir=tmp_path)
    for trainer.current_epoch, now[0] in enumerate([0.0, 20.0, 40.0, 50.0]):
        curves.on_train_epoch_end(trainer, SimpleNamespace(phases=lambda: plan))
    curves.on_exception(trainer, None, KeyboardInterrupt())
    curves.on_train_end(trainer, None)  # already drawn
    assert [len(epochs) for epochs in drawn] == [1, 3, 4]
