"""A larger suite during training, every few epochs, beside the general metrics of every epoch."""

import csv

from tests.tiny_runs import fit


def test_a_suite_every_second_epoch(tmp_path):
    suite = "[completeness/psc, continuity/plc, compactness/local_size]"
    fit(tmp_path / "run", f"--evaluation.validation_suite={suite}", "--evaluation.every_n_epochs=2")
    with (tmp_path / "run" / "metrics.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["val/general/accuracy"]]
    assert len(rows) == 5
    for key in ("val/completeness/psc", "val/continuity/plc", "val/compactness/local_size"):
        assert [bool(row[key]) for row in rows] == [False, True, False, True, False], key
    assert float(rows[1]["val/continuity/plc"]) >= 0
