from types import SimpleNamespace

import pytest
import torch

from callbacks import Interpretability
from callbacks.interpretability import announce_directions
from datamodules.sample import Capabilities
from lightning_modules.contract import ModelOutput, UnitTable

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0], [0.0, 2.0, 1.0], [2.0, 0.0, 1.0]])
LABELS = torch.tensor([0, 2, 1, 1])  # the last one is wrong


class Model:
    """Two units of one model, or whatever its table says."""

    device = torch.device("cpu")

    def __init__(self, weight=None):
        weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]) if weight is None else weight
        active = torch.ones(2, dtype=torch.bool)
        self.table = UnitTable("prototype", active, torch.ones(2, 3, dtype=torch.bool), "max", weight=weight)
        self.logged = {}

    def units(self):
        return self.table

    def log(self, key, value, **kwargs):
        self.logged[key] = value


def batches(logits=LOGITS, size=4):
    scores, maps = torch.ones(len(logits), 2), torch.ones(len(logits), 2, 1, 1)
    for part in torch.arange(len(logits)).split(size):
        batch = {"sample_id": [f"bird {i}" for i in part], "sample_key": part, "label": LABELS[part]}
        yield {"output": ModelOutput(logits[part], scores[part], maps[part])}, batch


def trainer(**capabilities):
    data = SimpleNamespace(
        num_classes=3, evaluated_split="test", capabilities=lambda split: Capabilities(**capabilities)
    )
    return SimpleNamespace(datamodule=data, loggers=[])


def one_pass(engine, model, stage="test", **options):
    run = trainer()
    getattr(engine, f"on_{stage}_start")(run, model)
    for index, (outputs, batch) in enumerate(batches(**options)):
        getattr(engine, f"on_{stage}_batch_end")(run, model, outputs, batch, index)
    getattr(engine, f"on_{stage}_epoch_end")(run, model)
    return engine.evaluation


@pytest.mark.parametrize("size", [1, 3, 4])
def test_the_entries_of_an_evaluation(size):
    evaluation = one_pass(Interpretability(["general/accuracy", "compactness/npr"]), Model(), size=size)
    accuracy, npr = evaluation.metrics["general/accuracy"], evaluation.metrics["compactness/npr"]
    assert list(accuracy) == ["value", "ci95", "n", "skipped", "unit", "higher_is_better"]
    assert (accuracy["value"], accuracy["n"], accuracy["skipped"]) == (0.75, 4, 0)
    assert accuracy["ci95"][0] < 0.75 < accuracy["ci95"][1]
    assert npr["value"] == pytest.approx(0.5)  # one negative weight, two positive ones
    assert evaluation.skipped == {}


def test_validation_and_test_log_under_their_keys():
    engine, model = Interpretability(["general"], ["general/accuracy"]), Model()
    one_pass(engine, model, "validation")
    assert model.logged == {"val/general/accuracy": 0.75}
    one_pass(engine, model)
    assert model.logged["general/accuracy"] == 0.75
    assert "val/general/f1" not in model.logged


def test_two_passes_do_not_mix():
    engine, model = Interpretability(["general/accuracy"]), Model()
    first = one_pass(engine, model)
    second = one_pass(engine, model, logits=LOGITS.flip(1))
    assert (first.metrics["general/accuracy"]["value"], first.metrics["general/accuracy"]["n"]) == (0.75, 4)
    assert (second.metrics["general/accuracy"]["value"], second.metrics["general/accuracy"]["n"]) == (0.25, 4)


def test_what_does_not_apply_is_skipped_with_the_reason():
    model = Model()
    model.table = UnitTable("prototype", model.table.active, model.table.owner, "max")
    evaluation = one_pass(Interpretability(["general/top3_accuracy", "compactness/npr", "general/accuracy"]), model)
    assert evaluation.skipped == {
        "general/top3_accuracy": "num_classes: top-3 accuracy needs more than 3 classes",
        "compactness/npr": "weight: the model has no weight matrix",
    }
    assert list(evaluation.metrics) == ["general/accuracy"]


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("name", ["logits", "scores", "maps"])
def test_the_samples_with_bad_outputs_are_named(name, value):
    engine, model, run = Interpretability(["general/accuracy"]), Model(), trainer()
    engine.on_test_start(run, model)
    ((outputs, batch),) = batches()
    bad = getattr(outputs["output"], name).clone()
    bad[1, 0], bad[3, -1] = value, value
    outputs["output"] = ModelOutput(**(vars(outputs["output"]) | {name: bad}))
    with pytest.raises(
        ValueError, match=r"Expected finite model outputs, but got .* for the samples bird 1, bird 3. The"
    ):
        engine.on_test_batch_end(run, model, outputs, batch, 0)


def test_not_all_of_many_bad_samples_are_named():
    engine, model, run = Interpretability(["general/accuracy"]), Model(), trainer()
    engine.on_validation_start(run, model)
    output = ModelOutput(torch.full((12, 3), torch.nan), torch.ones(12, 2), torch.ones(12, 2, 1, 1))
    batch = {"sample_id": [f"bird {i}" for i in range(12)], "sample_key": torch.arange(12), "label": torch.zeros(12)}
    with pytest.raises(ValueError, match=r"samples bird 0, .*, bird 9 "):
        engine.on_validation_batch_end(run, model, {"output": output}, batch, 0)


def test_unknown_names_are_refused_at_once():
    for arguments in ({"suite": ["genral"]}, {"validation_suite": ["genral"]}):
        with pytest.raises(ValueError, match=r"Expected argument `suite` to hold names among .*got .'genral'"):
            Interpretability(**arguments)


class Summary:
    def __init__(self):
        self.results = []

    def define_results(self, directions):
        self.results.append(dict(directions))


def test_directions_are_told_once_to_loggers_with_a_summary():
    engine, model, summary = Interpretability(["general/accuracy"], ["general/accuracy"]), Model(), Summary()
    run = trainer()
    run.loggers = [object(), summary]
    for _ in range(2):
        engine.on_validation_start(run, model)
        for index, (outputs, batch) in enumerate(batches()):
            engine.on_validation_batch_end(run, model, outputs, batch, index)
        engine.on_validation_epoch_end(run, model)
    assert summary.results == [{"val/general/accuracy": True}]
    announce_directions([summary], {})
    assert len(summary.results) == 1
