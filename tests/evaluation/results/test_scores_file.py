"""The scores file holds every score exactly."""

import csv

import numpy as np

from protometry.evaluation.results.scores_file import UnitScores

SCORES = UnitScores(["b", "a"], ["=wren", "jay"], ["prototype 0", "prototype 2"], np.float32([[0.1, -1], [1 / 3, 2]]))


def test_csv():
    header, *rows = csv.reader(SCORES.text.splitlines())
    assert header == ["sample_id", "label", "prototype 0", "prototype 2"]
    assert [row[:2] for row in rows] == [["b", "'=wren"], ["a", "jay"]]
    np.testing.assert_array_equal(np.float32([row[2:] for row in rows]), SCORES.values)
