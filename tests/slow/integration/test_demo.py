"""The trained model in the package."""

import webbrowser

import pytest

from protometry.evaluation.demo import main
from protometry.evaluation.results.metrics_json import read_metrics


def test_the_demo_measures_and_opens_its_pages_once(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.chdir(tmp_path)
    main([])
    page = tmp_path / "protometry-demo/evaluation/report/index.html"
    assert opened == [page.as_uri()]
    assert read_metrics(page.parents[1] / "metrics.json").metrics["general/accuracy"].value > 0.95
    monkeypatch.setattr("protometry.evaluation.demo._make", None)
    main([])
    assert len(opened) == 2
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/note.txt").touch()
    with pytest.raises(FileExistsError, match="theirs to be a new folder"):
        main(["--out", "theirs"])
