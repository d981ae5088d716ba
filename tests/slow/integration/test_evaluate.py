"""Evaluations: ways, names and batches that leave earlier results alone."""

import pytest

from protometry.callbacks import Interpretability
from protometry.datamodules import load_datamodule
from protometry.evaluation.evaluate import evaluate as evaluate_request
from protometry.evaluation.hardware import Hardware
from protometry.evaluation.request import Request
from protometry.evaluation.results.runs import collect
from protometry.evaluation.tables.run_tables import text_of
from protometry.evaluation.trained_model import TrainedModel
from protometry.run_folder.command_line.user_path import shown
from tests.integration.test_evaluate import GENERAL, strict
from tests.tiny_runs import fit, run_evaluation

CPU = Hardware("cpu")


def test_batches_and_workers_move_nothing(evaluated_copy):
    engine = Interpretability(["general", "compactness", "continuity"])
    path = evaluated_copy / "checkpoints" / "best.ckpt"
    reference, other = (
        evaluate_request(Request(TrainedModel(path, changes, ["tests"]), engine, overwrite=True), CPU)[0]["metrics"]
        for changes in ({"eval_batch_size": 32}, {"eval_batch_size": 5, "num_workers": 2})
    )
    assert other.keys() == reference.keys()
    for key, entry in reference.items():
        for name in ("value", "ci95", "n"):
            assert other[key][name] == pytest.approx(entry[name], abs=1e-6, nan_ok=True), (key, name)


def test_concepts_keep_their_names_on_data_without_any(tmp_path, other_birds, monkeypatch, capsys):
    fit(tmp_path / "run", *GENERAL, "--trainer.max_epochs=1", model="ConceptBottleneck")
    args = ["--suite", "compactness", "--data", str(other_birds), "--scores", "csv"]
    run_evaluation(tmp_path / "run", *args, "--report", "true")
    (scores,) = tmp_path.glob("run/evaluation/*/scores.csv")
    assert shown(scores) in capsys.readouterr().out
    names = load_datamodule(tmp_path / "run" / "checkpoints" / "last.ckpt").tables.concept_names
    header = scores.read_text().splitlines()[0].split(",")
    assert set(header[2:]) <= set(names)
    assert header[2] in (scores.parent / "report" / "units.html").read_text()
    monkeypatch.setattr(TrainedModel, "data", lambda trained: (_ for _ in ()).throw(FileNotFoundError("no photos")))
    with pytest.warns(UserWarning, match=r"have numbers instead of names, since its own data are gone: no photos"):
        run_evaluation(tmp_path / "run", *args, "--overwrite", "true")
    assert scores.read_text().splitlines()[0].split(",")[2] == "concept 0"


def test_the_ways_of_inference_of_a_tree_have_results_of_their_own(tmp_path):
    """They are never averaged, whether an evaluation requested them or the run's settings did."""
    mixture, greedy = tmp_path / "mixture", tmp_path / "greedy"
    fit(mixture, *GENERAL, "--trainer.max_epochs=1", model="ProtoTree")
    for inference in ([], ["--inference", "greedy"]):
        run_evaluation(mixture, "--suite", "general", *inference)
        with pytest.raises(FileExistsError, match="overwrite"):
            run_evaluation(mixture, "--suite", "general", *inference)
    with pytest.raises(FileExistsError, match="overwrite"):
        run_evaluation(mixture, "--suite", "general", "--inference", "distributed")  # the way of the run
    results = sorted((mixture / "evaluation").rglob("metrics.json"))
    assert [strict(path)["protocol"]["inference"] for path in results] == ["greedy", "distributed"]
    assert "inference=greedy" in results[0].parent.name
    assert ["inference" in result.conditions for result in collect(results)] == [True, True]
    fit(
        greedy,
        *GENERAL,
        "--trainer.max_epochs=1",
        "--test_after_fit=true",
        "--model.inference=greedy",
        model="ProtoTree",
    )
    text = text_of(collect([mixture / "evaluation", greedy]), "markdown")
    assert "ProtoTree, cut short in warm, not projected, inference greedy" in text
    assert "ProtoTree, cut short in warm, not projected, inference distributed" in text


def test_a_run_that_goes_on_keeps_its_earlier_result(tmp_path):
    folder = tmp_path / "run"
    fit(folder, *GENERAL, "--trainer.max_epochs=1", "--test_after_fit=true")
    fit(folder, *GENERAL, "--trainer.max_epochs=2", "--test_after_fit=true", "--ckpt_path", "last")
    result = {path.parent.name: strict(path)["step"] for path in (folder / "evaluation").rglob("metrics.json")}
    assert result == {"evaluation": 4, "last-step8-test-general": 8}
