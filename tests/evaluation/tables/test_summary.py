"""The printed summary of an evaluation."""

import re

import pytest

from protometry.evaluation.tables.summary import print_summary
from tests.evaluation.explained.evaluated import content, entry, write_run


def test_names_with_brackets_are_printed_as_they_are(tmp_path, capsys):
    folder = write_run(tmp_path / "m[/b]x[red]", {"general/accuracy": 0.5}) / "evaluation"
    result = content({"a[/b]": entry(0.5, 0.4, 0.6)}, {"x": "[/i]"}, checkpoint="[/b].ckpt", other_data=None)
    result["protocol"]["cells"] = ["One cell stands for the whole image."]
    print_summary(result, folder)
    said = capsys.readouterr().out
    places = f"metrics:     {folder / 'metrics.json'}"
    assert all(text in said for text in ("a[/b]", "because [/i]", "[/b].ckpt", "One cell stands for the", places))


@pytest.mark.parametrize(
    ("columns", "line"), [("90", "50.00 % [40.00, 60.00] 10"), ("120", "% 50.00 [40.00, 60.00] 10")]
)
def test_values_have_the_units_of_all_tables(tmp_path, capsys, monkeypatch, columns, line):
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal
    monkeypatch.setenv("COLUMNS", columns)
    lacking = entry(0.5, 0.4, 0.6) | {"averaged_over": "class", "without_images": 1}
    result = content(
        {"general/f1": lacking, "general/balanced_accuracy": lacking, "b/b": entry(float("nan"), unit="cells")},
        other_data=None,
    )
    result["metrics"]["b/b"]["reason"] = "all 8 images are the same picture"
    print_summary(result, tmp_path)
    said = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).split())
    assert f"general/f1 ↑ {line}" in said
    assert "undefined – 10" in said
    assert "1 class has no image: general/f1, balanced_accuracy" in said
    assert "undefined, because all 8 images are the same picture: b/b" in said
