"""Figures of runs: what is drawn are the numbers, with their intervals, and what cannot be drawn is refused."""

import numpy as np
import pytest
from PIL import Image

from protometry.evaluation.pictures.figures import draw
from protometry.evaluation.published.paper_tables import of_headings, paper_table
from protometry.evaluation.results.runs import collect
from protometry.evaluation.tables.paper_rows import of_keys, sections_of
from protometry.scripts import evaluate
from tests.evaluation.explained.evaluated import entry, write_run

ACC, F1, VLC, NPR = "general/accuracy", "general/f1", "completeness/vlc", "compactness/npr"


@pytest.fixture
def runs(tmp_path):
    values = {ACC: entry(0.8, 0.7, 0.85), F1: 0.6, VLC: entry(0.3, higher=False), NPR: entry(2.0, unit="ratio")}
    write_run(tmp_path / "a", values, fold=None)
    write_run(tmp_path / "b", {ACC: 0.5}, model="BagNet", fold=None)
    return [tmp_path / "a", tmp_path / "b"]


def drawn(keys, runs):
    table = of_keys(keys, collect(runs))
    return draw(table, sections_of(table, runs))


def test_bars_are_as_long_as_the_values_with_their_intervals(runs):
    accuracy, npr = drawn([ACC, NPR], runs).axes
    assert [bar.get_width() for bar in accuracy.patches] == [80, 50]
    ((below, above),) = accuracy.collections[0].get_segments()
    assert np.allclose([below[0], above[0]], [70, 85])
    assert (npr.patches[0].get_width(), [text.get_text() for text in npr.texts]) == (2, ["", "–"])


def test_published_numbers_stand_next_to_runs_of_their_data_set(runs):
    table = of_headings(paper_table("quanproto/2"), ["accuracy", "NPR"])
    figure = draw(table, sections_of(table, runs))
    accuracy, _ = figure.axes
    widths = [round(bar.get_width(), 2) for bar in accuracy.patches]
    assert widths == [70.18, 80, 69.12, 67.33, 74, 50]  # ours below ProtoPNet's, BagNet at the end
    assert [text.get_text() for text in accuracy.texts] == ["", "†", "", "", "", "†"]
    assert "† measured differently" in figure.get_supxlabel()
    assert "grey: published" in figure.get_supxlabel()


def test_the_command_writes_a_file_and_keeps_another(runs, tmp_path, capsys):
    (tmp_path / "f.png").write_text("mine")
    command = ["figure", *map(str, runs), "--metric", f"{ACC},{F1}", "--output"]
    evaluate.main([*command, str(tmp_path / "f.png")])
    assert capsys.readouterr().out == f"figure: {tmp_path}/f-2.png\n"
    assert Image.open(tmp_path / "f-2.png").width > 500
    assert (tmp_path / "f.png").read_text() == "mine"
    for _ in range(2):  # the same bytes each time
        evaluate.main([*command, str(tmp_path / "f.pdf")])
    assert not (tmp_path / "f-2.pdf").exists()


@pytest.mark.parametrize(("more", "message"), [
    (["--output", "f.docx", "--metric", ACC], "`output` to end in .png, .pdf, .svg, but got f.docx"),
    (["--output", "f.png"], "`metric` to name metrics, or `published` a table, but got neither"),
    (["--output", "f.png", "--metric", "general/f2"], "got 'general/f2'. Did you mean 'general/f1'"),
])  # fmt: skip
def test_what_cannot_be_drawn_is_refused(runs, more, message):
    with pytest.raises(ValueError, match=message):
        evaluate.main(["figure", *map(str, runs), *more])
