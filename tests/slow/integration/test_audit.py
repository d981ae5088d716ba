"""The audit of a trained model: measured once, and said in sentences."""

import pytest

from protometry.evaluation.audit import main
from protometry.evaluation.results.runs import evaluations
from tests.tiny_runs import fit


def test_an_audit_is_measured_once_and_does_not_stand_for_the_run(tmp_path, capsys):
    phases = "--model.phases={warm: {epochs: 1}, joint: null, last: {epochs: 1}, joint2: null, last2: null}"
    fit(tmp_path / "run", phases, "--test_after_fit=true", model="ProtoPNet")
    first = evaluations(tmp_path / "run")[0]
    capsys.readouterr()
    main([str(tmp_path / "run"), "--images", "16"])
    measured = capsys.readouterr().out
    main([str(tmp_path / "run"), "--images", "16"])
    again = capsys.readouterr().out
    assert "The model classifies" in again
    assert measured.endswith(again)
    chosen, audit = evaluations(tmp_path / "run")
    assert chosen.path == first.path
    assert (audit.limit, audit.timing["images"]) == (16, 16)
    assert audit.protocol["whole_split"] == ["alignment/consistency"]
    assert audit.metrics["alignment/consistency"].images_per_unit == 33 / 8  # of all images of 8 classes
    assert "The model classifies" in (audit.path.parent / "report/audit.html").read_text("utf-8")


def test_without_a_checkpoint_nothing_is_measured(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"last\.ckpt"):
        main([str(tmp_path)])
