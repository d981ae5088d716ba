"""Runs that are killed anywhere and resumed, at more points and with more models."""

import pytest

from tests.callbacks.phases.test_phase_schedule import STEPS
from tests.callbacks.phases.test_resume import assert_ends_the_same


@pytest.mark.parametrize(("plan", "cut"), [
    ("per epoch", {"max_epochs": 1}),  # between two phases
    ("per epoch", {"max_epochs": 2}),  # within one
    ("per epoch", {"max_epochs": 7}),  # before pruning
    ("per epoch", {"kill": 1}),  # before the first epoch is over
    ("per step", {"max_epochs": 2}),
    ("per step", {"max_epochs": 3}),
    ("two views", {"max_epochs": 1}),  # within the ramp of the alignment loss
    ("two views", {"kill": 5 * STEPS + 1}),
    ("shared", {"max_epochs": 3}),  # with soft slots
    ("shared", {"max_epochs": 4}),  # before hardening
    ("shared", {"kill": 5 * STEPS + 1}),  # with hard ones
    ("selected", {"max_epochs": 1}),
    ("selected", {"kill": 2 * STEPS + 1}),  # after the selection, before its epoch is saved
    ("selected", {"max_epochs": 3}),
    ("one phase", {"kill": STEPS + 1}),
], ids=str)  # fmt: skip
def test_a_resumed_run_ends_as_one_that_was_not_cut(tmp_path, straight, plan, cut):
    assert_ends_the_same(tmp_path, straight(plan), plan, cut)
