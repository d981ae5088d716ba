"""Messages of libraries: which are silenced, how ours look, and where they go."""

import io
import logging
import sys
import warnings

import pytest
from lightning.pytorch.utilities import rank_zero_info

from protometry.run_folder.command_line.messages import tidy_lightning, tidy_messages
from tests.tiny_runs import ROOT


@pytest.fixture
def tidy(monkeypatch):
    """The state of the process is the same as before."""
    handlers = [
        h for name in ("lightning", "lightning.pytorch", "lightning.fabric") for h in logging.getLogger(name).handlers
    ]
    before = [(handler, handler.__class__, list(handler.filters)) for handler in handlers]
    assert handlers
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        tidy_messages()
        tidy_lightning()
        yield
    for handler, kind, filters in before:
        handler.__class__, handler.filters = kind, filters


def test_messages_go_where_the_errors_of_the_moment_go(tidy, monkeypatch):
    for text in ("above the bar", "below it"):
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        rank_zero_info("TPU available: False, using: 0 TPU cores")
        rank_zero_info("💡 Tip: For seamless cloud logging, buy")
        rank_zero_info(text)
        assert sys.stderr.getvalue() == f"{text}\n"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("x.py", "warning: mine\n"),
        ("/else/x.py", "/else/x.py:3: UserWarning: mine"),
        (f"{ROOT.parent}/x.py", f"{ROOT.parent}/x.py:3: UserWarning: mine"),
    ],
)
def test_our_warnings_are_a_line_and_those_of_others_say_where(tidy, path, expected):
    assert warnings.formatwarning("mine", UserWarning, str(ROOT / "callbacks" / path), 3).startswith(expected)


def test_warnings_that_say_nothing_are_ignored_and_no_others(tidy):
    with warnings.catch_warnings(record=True) as caught:
        warnings.warn("`isinstance(treespec, LeafSpec)` is deprecated, use x", FutureWarning, stacklevel=1)
        warnings.warn("The 'val_dataloader' does not have many workers which may", stacklevel=1)
        warnings.warn("The number of training batches (4) is smaller than the logging interval", stacklevel=1)
        warnings.warn("Found 4 module(s) in eval mode at the start of training. This", stacklevel=1)
        warnings.warn("The loss is odd", stacklevel=1)
    assert [str(warning.message) for warning in caught] == ["The loss is odd"]
