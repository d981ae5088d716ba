"""images.csv: what is written is read back bit for bit, and what is wrong is named by its line."""

import numpy as np
import pytest

from protometry.callbacks.evaluation.predictions import Prediction
from protometry.evaluation.results.values_csv import prediction_cells, read_values, values_text
from protometry.run_folder.atomic import write_atomic


def test_written_values_come_back(tmp_path):
    prediction = prediction_cells(Prediction((0,), (1,), (0.75,)), ["=wren", "jay | x"])
    images = {
        "=1+1": {"x/y": -1.0, "z": 0.0},
        "b,1": {"x/y": 0.1 + 0.2, "z": float("nan")},
        'a "2"\nc': {"x/y": -1e-300, "z": 1 / 3},
    }
    rows = {name: prediction | row for name, row in sorted(images.items())}
    write_atomic(tmp_path / "images.csv", values_text(rows, "sample_id"))
    result = read_values(tmp_path / "images.csv")
    assert (result.sample_ids, result.keys) == (sorted(images), ["x/y", "z"])
    np.testing.assert_array_equal(result.rows(["b,1", 'a "2"\nc']), [[0.1 + 0.2, np.nan], [-1e-300, 1 / 3]])
    assert result.rows([]).shape == (0, 2)


@pytest.mark.parametrize(("text", "message"), [
    ("", r"to start with unit and distinct metrics, but got \[\]"), ("id,x\n", "to start with unit"),
    ("unit,x,x\n", "to start with unit and distinct metrics"),
    ("unit,x\na,1\na,2\n", "Expected line 3 of .* to hold a new unit"),
    ("unit,x\na,1,2\n", "Expected line 2 of .* and 1 values"),
    ("unit,x\na,1\nb,nan\n", "Expected line 3 of .* finite numbers or empty cells, but got 'nan'"),
    ("unit,x\na,inf\n", "but got 'inf'"), ("unit,x\na,one\n", "but got 'one'"),
    ("unit,general/accuracy\na,5.0\n", "line 2 of .* to hold a general/accuracy from -1e-09 to 1, but got 5.0"),
    (b"unit,x\n\xe9,1\n", "units.csv to be a table in UTF-8, but 'utf-8' codec can't decode"),
    (f'unit,x\n"{"a" * 200_000}",1\n', "units.csv to be a table in UTF-8, but field larger than"),
])  # fmt: skip
def test_wrong_files(tmp_path, text, message):
    path = tmp_path / "units.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message):
        read_values(path)


def test_images_without_predictions_are_evaluated_again(tmp_path):
    path = tmp_path / "images.csv"
    path.write_text("sample_id,label,correct\na,jay,1\n")
    with pytest.raises(ValueError, match=r"to start with sample_id, label, prediction, .*Evaluate the run again"):
        read_values(path)


def test_there_may_be_none(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"Expected .*images.csv next to the metrics.json.*--overwrite true"):
        read_values(tmp_path / "images.csv")
