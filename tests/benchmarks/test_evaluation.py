"""The benchmark of the evaluation runs, and counts the passes of a suite."""

import pytest

from benchmarks import evaluation


@pytest.mark.slow
def test_the_table_is_printed(monkeypatch, capsys):
    shape = ["--backbone", "sketch", "--pixels", "32", "--units", "20", "--images", "4", "--repeats", "1"]
    monkeypatch.setattr("sys.argv", ["evaluation.py", "--suites", "quanproto", *shape, "--threads", "1"])
    evaluation.main()
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| quanproto |")]
    assert [float(cell) for cell in row.split("|")[2:5]] == [1.0, 6.0, 10.0]
