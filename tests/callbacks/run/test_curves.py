"""The figure of a training."""

import math

import numpy as np
import pytest

from callbacks.run import curves
from callbacks.run.curves import HEIGHT, LEFT, RIGHT, WIDTH, TrainingCurves, training_curves

TRAINING, VALIDATION = (0, 114, 178), (213, 94, 0)


def rows(*losses, **keys):
    return [{"phase": "warm" if i < 2 else "joint", "train/loss": loss, **keys} for i, loss in enumerate(losses)]


def drawn(picture, colour, left=0):
    """Rows and columns of the pixels of a colour in a panel, below the names of curves."""
    pixels = np.asarray(picture)[40:, left : left + WIDTH]
    down, across = np.nonzero((pixels == colour).all(axis=2))
    return down + 40, across


def test_curves_go_through_their_values_and_phases_begin_at_lines():
    picture = training_curves(rows(4.0, 2.0, 3.0, 1.0))
    assert picture.size == (WIDTH, HEIGHT)
    down, across = drawn(picture, TRAINING)
    axis = WIDTH - LEFT - RIGHT
    places = {epoch: LEFT + axis * epoch / 4 for epoch in range(5)}
    heights = [down[abs(across - places[epoch]) < 1].mean() for epoch in (1, 2, 3, 4)]
    assert sorted(heights) == [heights[0], heights[2], heights[1], heights[3]]  # the largest loss is the highest
    assert (heights[3] - heights[0]) / (heights[1] - heights[0]) == pytest.approx(3 / 2, abs=0.03)
    columns, counts = np.unique(drawn(picture, (128, 128, 128))[1], return_counts=True)
    lines = columns[counts > 200]
    assert lines.tolist() == [LEFT, LEFT + axis // 2]  # warm from 0, joint from the end of epoch 2


def test_values_that_are_missing_or_not_finite_leave_gaps():
    both = training_curves(rows(4.0, math.nan, 3.0, 1.0, **{"train/accuracy": 0.5}))
    assert both.size == (2 * WIDTH, HEIGHT)
    _, across = drawn(both, TRAINING)
    gap = LEFT + (WIDTH - LEFT - RIGHT) // 2
    assert not ((across > gap - 80) & (across < gap + 80)).any()
    assert not len(drawn(both, VALIDATION, WIDTH)[0])
    assert drawn(training_curves([{"phase": "a", "val/general/accuracy": 1.0}]), VALIDATION)[0].size


def test_constant_curves_and_no_epochs():
    assert len(drawn(training_curves(rows(2.0, 2.0)), TRAINING)[0])
    assert len(drawn(training_curves(rows(0.0)), TRAINING)[0])
    with pytest.raises(ValueError, match="`rows` to hold at least one epoch, but got none"):
        training_curves([])


@pytest.mark.parametrize(("low", "high"), [(0.3, 4.2), (97.0, 97.0), (-1e-4, 3e-4), (0.0, 1e6), (99.2, 100.0)])
def test_ticks_are_round_and_hold_the_values(low, high):
    ticks = curves._ticks(low, high)
    assert ticks[0] <= low <= high <= ticks[-1]
    assert 2 <= len(ticks) <= 8
    steps = np.diff(ticks)
    assert np.allclose(steps, steps[0])
    assert f"{steps[0]:e}"[0] in "125"


def test_a_checkpoint_holds_the_epochs_so_far():
    first, second = TrainingCurves(), TrainingCurves()
    first.rows = rows(1.0, 2.0)
    second.load_state_dict(first.state_dict())
    assert second.rows == first.rows
