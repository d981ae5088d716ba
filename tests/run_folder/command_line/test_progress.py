"""Long passes: a bar in a terminal, lines elsewhere, nothing of short ones and of passes within others."""

import io
import time

from rich.console import Console

from protometry.run_folder.command_line import progress
from protometry.run_folder.command_line.progress import track


def test_a_log_has_lines_also_while_one_step_takes_long(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.02)
    for item in track([1, 2], "Keeping features"):
        assert list(track([3], "Within")) == [3]
        time.sleep(0.05 * item)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Keeping features: 0 % · 0 s so far"
    assert lines[-1].startswith("Keeping features: 50 % · 0 s so far")
    assert not any("Within" in line for line in lines)


def test_a_terminal_has_a_bar_of_long_passes_alone(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(progress, "Console", lambda **_: Console(file=screen, force_terminal=True, width=80))
    list(track(range(3), "Short"))
    assert screen.getvalue() == ""
    monkeypatch.setattr(progress, "SECONDS_BEFORE_BAR", 0.0)
    for _ in track(range(2), "Long"):
        time.sleep(0.05)
    assert "Long" in screen.getvalue()
