"""The printed summary of an evaluation."""

from reports.results.summary import print_summary
from tests.reports.evaluated import content, entry, write_run


def test_names_with_brackets_are_printed_as_they_are(tmp_path, capsys):
    folder = write_run(tmp_path / "m[/b]x[red]", {"general/accuracy": 0.5}) / "evaluation"
    print_summary(
        content({"a[/b]": entry(0.5, 0.4, 0.6)}, {"x": "[/i]"}, checkpoint="[/b].ckpt", other_data=None), folder
    )
    said = capsys.readouterr().out
    assert all(
        text in said for text in ("a[/b]", "because [/i]", "[/b].ckpt", f"metrics:     {folder / 'metrics.json'}")
    )
