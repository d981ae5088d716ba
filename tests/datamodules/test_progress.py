from datamodules import progress
from datamodules.progress import no_progress, print_progress


def test_a_line_per_tenth(monkeypatch, capsys):
    monkeypatch.setattr(progress, "QUIET_SECONDS", -1.0)
    assert list(print_progress(range(25), "counting")) == list(range(25))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "counting: 3 of 25 (10 %)"
    assert lines[-1] == "counting: 25 of 25 (100 %)"
    assert len(lines) == 10


def test_short_passes_are_quiet(capsys):
    assert list(print_progress(range(25), "counting")) == list(no_progress(range(25), "counting"))
    assert capsys.readouterr().out == ""
