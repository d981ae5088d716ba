"""The two formats of the scores file hold the same."""

import csv

import numpy as np
import pytest

from protometry.evaluation.results.scores_file import UnitScores, write_scores

SCORES = UnitScores(["b", "a"], ["=wren", "jay"], ["prototype 0", "prototype 2"], np.float32([[0.1, -1], [1 / 3, 2]]))


def test_csv(tmp_path):
    write_scores(SCORES, tmp_path, "csv")
    with (tmp_path / "scores.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["sample_id", "label", "prototype 0", "prototype 2"]
    assert [row[:2] for row in rows] == [["b", "'=wren"], ["a", "jay"]]
    np.testing.assert_array_equal(np.float32([row[2:] for row in rows]), SCORES.values)


def test_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    write_scores(SCORES, tmp_path, "parquet")
    result = parquet.read_table(tmp_path / "scores.parquet").to_pydict()
    assert list(result) == ["sample_id", "label", "prototype 0", "prototype 2"]
    assert (result["sample_id"], result["label"]) == (["b", "a"], ["=wren", "jay"])
    np.testing.assert_array_equal(np.float32([result["prototype 0"], result["prototype 2"]]).T, SCORES.values)
