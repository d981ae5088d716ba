"""A paper's table with runs in it, against a table worked out by hand."""

import csv
import io
import json

import pytest

from protometry.evaluation.published import paper_tables
from protometry.evaluation.published.numbers import Published
from protometry.evaluation.published.paper_tables import PaperTable, columns_of
from protometry.evaluation.results.values_csv import values_text
from protometry.evaluation.tables.paper_rows import sections_of
from protometry.evaluation.tables.paper_text import text_of_paper
from protometry.run_folder.atomic import write_atomic
from protometry.scripts import evaluate
from tests.evaluation.explained.evaluated import entry, write_run

ACC, F1, NPR = "general/accuracy", "general/f1", "compactness/npr"
TABLE = PaperTable("p/1", "a title", ["p"], ["T"], columns_of({"accuracy": ACC, "F1": F1, "NPR": NPR}))
PUBLISHED = {  # accuracy: a tie of the best; F1: best, second best, third; NPR: two, of which the lower is best
    "ProtoPNet[input=crop]": {ACC: (0.7, 0.01, "Q9"), F1: (0.1, None, "Q4"), NPR: (0.5, None, "")},
    "PIPNet[input=crop]": {ACC: (0.7, None, "Q9"), F1: (0.2, None, "Q4 Q9"), NPR: (0.2, None, "")},
    "ProtoTree[input=crop]": {ACC: (0.6, None, "Q9 Q8"), F1: (0.3, None, "Q8 Q4")},
}


@pytest.fixture
def sections(tmp_path, monkeypatch):
    """ProtoPNet in two folds, PIPNet on full images and BagNet, to which NPR does not apply."""
    records = [
        Published("p", "T", "cub200", model, key, value, sd, 4, note, True)
        for model, cells in PUBLISHED.items()
        for key, (value, sd, note) in cells.items()
    ]
    monkeypatch.setattr(paper_tables, "all_records", lambda: records)
    npr = {"unit": "ratio", "higher": False}
    for fold, accuracy in enumerate((0.7, 0.8)):
        write_run(tmp_path / f"a_%/{fold}", {ACC: accuracy, F1: 0.25, NPR: entry(0.4, **npr)}, fold=fold)
    pipnet = {ACC: entry(0.75, 0.7, 0.8), F1: 0.5, NPR: entry(0.3, **npr)}
    write_run(tmp_path / "b", pipnet, model="PIPNet", fold=None, protocol={"crop": "none"})
    bagnet = {ACC: entry(0.5, 0.4, 0.6), F1: entry(0.375)}
    write_run(tmp_path / "c", bagnet, model="BagNet", fold=None, skipped={NPR: "no weights"})
    return sections_of(TABLE, [tmp_path / name for name in ("a_%/0", "a_%/1", "b", "c")])


def cells(text):
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_by_hand(sections):
    text = text_of_paper(TABLE, sections, "markdown", spread=True)
    # folds .7 and .8: mean .75, deviation .1 / √2; ours are ranked apart: 75 and 75 tie; F1 50 > 37.5 > 25; NPR .3 < .4
    assert cells(text) == [
        ["model", "source", "accuracy ↑ % (Q9)", "F1 ↑ % (Q4)", "NPR ↓", "n"],
        ["ProtoPNet", "published", "**70.0 ± 1.0**", "10.00", "0.50", "4"],
        ["ProtoPNet", "a_%/*", "**75.0 ± 7.1**", "25.00 ± 0.00", "0.40 ± 0.00", "2"],
        ["PIPNet", "published", "**70.00**", "*20.00 (Q9)*", "**0.20**", "4"],
        ["PIPNet (†)", "b", "**75.00 [70.00, 80.00]**", "**50.00**", "**0.30**", "1"],
        ["ProtoTree (Q8)", "published", "60.00", "**30.00**", "–", "4"],
        ["BagNet", "c", "50.00 [40.00, 60.00]", "*37.50*", "n/a", "1"],
    ]
    assert "- n/a, because no weights: NPR, in c\n" in text
    assert "- † published with input=crop (these runs: full): accuracy, F1, NPR, in b\n" in text
    assert "\n- Q4: entropy is clamped" in text
    assert "Q1:" not in text
    short = text_of_paper(TABLE, sections, "markdown")
    assert cells(short)[2] == ["ProtoPNet", "a_%/*", "**75.00**", "25.00", "0.40"]


def test_latex_is_whole_and_escaped(sections):
    lines = text_of_paper(TABLE, sections, "latex", spread=True).splitlines()
    begin, end = lines.index(r"\begin{tabular}{llrrrr}"), lines.index(r"\end{tabular}")
    assert lines[begin + 2] == (
        r"model & source & accuracy $\uparrow$ \% (Q9) & F1 $\uparrow$ \% (Q4) & NPR $\downarrow$ & n \\"
    )
    assert lines[begin + 5] == (
        r"ProtoPNet & a\_\%/* & \textbf{75.0 $\pm$ 7.1} & 25.00 $\pm$ 0.00 & 0.40 $\pm$ 0.00 & 2 \\"
    )
    assert {line.count(" & ") for line in lines[begin + 2 : end] if line.endswith(r"\\")} == {5}
    assert r"\noindent n/a, because no weights: NPR, in c\par" in lines[end:]


def test_csv_and_json_have_every_number_at_full_precision(sections):
    result = json.loads(text_of_paper(TABLE, sections, "json"))
    rows = list(csv.DictReader(io.StringIO(text_of_paper(TABLE, sections, "csv"))))
    assert [{name: "" if value is None else str(value) for name, value in record.items()} for record in result] == rows
    by_place = {(row["source"], row["model"], row["column"]): row for row in result}
    mean = by_place["a_%/*", "ProtoPNet", "accuracy"]
    assert (mean["mean"], mean["sd"], mean["n"], mean["rank"]) == (0.75, pytest.approx(0.1 / 2**0.5), 2, 1)
    expected = {"low": 0.7, "high": 0.8, "note": "†; input=crop (these runs: full)"}
    assert by_place["b", "PIPNet", "accuracy"] | expected == by_place["b", "PIPNet", "accuracy"]
    assert (by_place["c", "BagNet", "NPR"]["note"], by_place["published", "PIPNet", "F1"]["rank"]) == ("no weights", 2)


def test_a_number_of_another_definition_is_marked_and_the_nearest_is_taken(tmp_path, capsys):
    accuracies = {ACC: 0.9, "general/balanced_accuracy": entry(0.8, 0.7, 0.9), F1: 0.7}
    write_run(tmp_path / "run", accuracies, fold=None, protocol={"backbone": "resnet50"})
    evaluate.main(["table", str(tmp_path / "run"), "--published", "quanproto/2"])
    ours = next(row for row in cells(capsys.readouterr().out) if row[1] == "run")
    assert ours[2:5] == ["80.00", "n/a", "70.00 (†)"]  # weighted by class, as published; not weighted


def test_concepts_and_classes_are_those_the_paper_counts(tmp_path, capsys):
    keys = [f"concepts/cgim{kind}_{axis}" for kind in (1, 2, 3) for axis in ("concept", "class")]
    values = {key: entry(0.5, unit="cosine") for key in keys}
    folder = write_run(tmp_path / "run", values, model="PosthocCBM", fold=None) / "evaluation"
    for file, head, count in (("concepts", "concept", 112), ("classes", "class", 20)):
        rows = {f"{head}{n}": {key: n / 200 for key in values if key.endswith(head)} for n in range(1, count + 1)}
        write_atomic(folder / f"{file}.csv", values_text(rows, head))
    for table, name in (("6", "concept 51"), ("8", "class 18")):
        evaluate.main(["table", str(tmp_path / "run"), "--published", f"concept_metrics/{table}"])
        text = capsys.readouterr().out
        (ours,) = [row for row in cells(text) if name in row[0] and row[1] == "run"]
        assert ours[2] == ("0.255" if table == "6" else "n/a")
    assert "- n/a, because the paper counts 200 classes, these data have 20: CGIM1" in text
    (folder / "concepts.csv").unlink()  # as of a model whose units are not the concepts of the data
    evaluate.main(["table", str(tmp_path / "run"), "--published", "concept_metrics/6"])
    assert "- n/a, because not measured by concept: " in capsys.readouterr().out


def test_nothing_is_marked_beside_nothing_published(tmp_path, capsys):
    solved = {"backbone": "resnet50", "last_layer": "solved", "pruned": True}
    write_run(tmp_path / "run", {ACC: 0.9}, fold=None, protocol=solved)
    evaluate.main(["table", str(tmp_path / "run"), "--published", "qpm/accuracy"])
    assert "†" not in capsys.readouterr().out


def test_runs_without_any_of_its_metrics_are_refused(tmp_path):
    write_run(tmp_path / "run", {ACC: 0.5})
    with pytest.raises(ValueError, match=r"of concept_metrics/1, but none has any of .*`--suite concepts_full`"):
        evaluate.main(["table", str(tmp_path / "run"), "--published", "concept_metrics/1"])
    with pytest.raises(ValueError, match=r"of hive/1, .* folder of a study that `protometry studies analyse`"):
        evaluate.main(["table", str(tmp_path / "run"), "--published", "hive/1"])
