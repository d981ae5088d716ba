"""Tables of runs as CSV, JSON and LaTeX."""

import csv
import io
import json

import pytest

from protometry.evaluation.results.runs import collect
from protometry.evaluation.tables.renderers import escaped
from protometry.evaluation.tables.run_tables import records, text_of
from protometry.scripts import evaluate
from tests.evaluation.explained.evaluated import entry, write_run

F1, NPR, VLC = "general/f1", "compactness/npr", "completeness/vlc"


@pytest.fixture
def results(tmp_path):
    """A third, undefined in one of two seeds, in the first of two folds; and one run of another model."""
    runs = {"a/=0": (0, 0, 1 / 3), "a/=1": (0, 1, 2 / 3), "a/=2": (1, 0, 0.8)}
    for name, (fold, seed, f1) in runs.items():
        metrics = {F1: f1, NPR: entry(f1 if fold else None, 0.0, 2.0, unit="ratio", higher=False)}
        facts = {"fold": fold, "protocol": {"train_seed": seed}, "skipped": {VLC: "no, none"}}
        write_run(tmp_path / name, metrics, **facts)
    write_run(tmp_path / "b_50%&", {F1: entry(0.5, 0.4, 0.6)}, model="BagNet", fold=None)
    return collect([*(tmp_path / name for name in runs), tmp_path / "b_50%&"])


def test_records_have_a_number_each_at_full_precision(results):
    result = {(record["name"], record["metric"]): record for record in records(results)}
    f1, npr, vlc, bag = (result[key] for key in (("a/=*", F1), ("a/=*", NPR), ("a/=*", VLC), ("b_50%&", F1)))
    # folds 1/2 and 4/5: mean 13/20, deviation 3/10 / √2; seeds of the first: ±1/6, one degree of freedom
    assert (f1["mean"], f1["sd"]) == (pytest.approx(0.65, abs=1e-15), pytest.approx(0.3 / 2**0.5, abs=1e-15))
    assert f1["sd_within_folds"] == pytest.approx(2**0.5 / 6, abs=1e-15)
    assert [f1[name] for name in ("unit", "sd_over", "n", "n_folds", "low")] == ["fraction", "folds", 3, 2, None]
    assert [npr[name] for name in ("mean", "sd", "sd_within_folds", "n", "low", "high")] == [0.8, None, None, 1, 0, 2]
    assert npr["note"] == "undefined in 2 of 3 results"
    assert [vlc[name] for name in ("mean", "sd", "n", "note")] == [None, None, 0, "n/a, because no, none"]
    names = ("mean", "sd", "sd_over", "sd_within_folds", "n", "n_folds", "low", "high")
    assert [bag[name] for name in names] == [0.5, None, None, None, 1, None, 0.4, 0.6]
    facts = [(run["name"], run["fold"], run["train_seed"]) for run in f1["runs"]]
    assert facts == [("a/=0", 0, 0), ("a/=1", 0, 1), ("a/=2", 1, 0)]
    assert f1["runs"][0]["read_from"].endswith("/a/=0/evaluation, best.ckpt at step 4")


def test_csv_and_json_hold_the_records(results):
    result = records(results, "quanproto")
    assert json.loads(text_of(results, "json", "quanproto")) == result
    rows = list(csv.DictReader(io.StringIO(text_of(results, "csv", "quanproto"))))
    means = ["" if record["mean"] is None else repr(record["mean"]) for record in result]
    assert ([row["mean"] for row in rows], rows[0]["runs"]) == (means, "a/=0; a/=1; a/=2")
    quoted = next(record for record in result if record["name"] == "quanproto")
    expected = {"metric": NPR, "mean": 0.25, "sd": 0.19, "n": 4, "note": "Q10", "split": None}
    assert ({name: quoted[name] for name in expected}, list(quoted)) == (expected, list(result[0]))


def test_latex_has_tables_for_booktabs(results):
    text = text_of(results, "latex")
    table = [line for line in text.splitlines() if not line.startswith("%")]
    assert table == [
        r"\begin{tabular}{llrr}",
        r"\toprule",
        r"metric & unit & ProtoPNet (a/=*) & BagNet (b\_50\%\&) \\",
        r"\midrule",
        r"general/f1 $\uparrow$ & \% & 65 $\pm$ 21 $\pm$ 24 & 50.00 {[}40.00, 60.00] \\",
        r"compactness/npr $\downarrow$ & ratio & 0.80 {[}0.00, 2.00] (1/3) & -- \\",
        r"completeness/vlc & & n/a & -- \\".replace(" & &", " &  &"),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert "% n/a, because no, none: completeness/vlc" in text
    assert [line for line in text_of(results, "latex", "quanproto").splitlines() if line.startswith("metric")] == [
        r"metric & unit & mean $\pm$ std over folds $\pm$ over seeds & n & quanproto & quanproto \dag{}"
        r" & quanproto pruned=yes & quanproto pruned=yes \dag{} \\",
        r"metric & unit & value {[}95 \%] & n \\",
    ]


def test_nothing_of_latex_is_left():
    assert escaped('\\&%$#_{}~^|"<>') == (
        r"\textbackslash{}\&\%\$\#\_\{\}\textasciitilde{}\textasciicircum{}\textbar{}''\textless{}\textgreater{}"
    )


def test_the_command_takes_a_format(results, capsys):
    evaluate.main(["table", *(str(result.run) for result in results), "--format", "json"])
    assert json.loads(capsys.readouterr().out) == records(results)
