"""Which earlier results answer a request: the requested memory budget decides, whatever the device."""

from dataclasses import replace
from inspect import signature
from pathlib import Path

import pytest

from protometry.callbacks import Interpretability
from protometry.evaluation.request import Request
from protometry.evaluation.trained_model import TrainedModel
from protometry.scripts import evaluate

NOTHING = {"metrics": {}, "timing": {"images": 2000}}  # was measured on so many images


@pytest.mark.parametrize(("asked", "earlier", "same"), [
    (None, {"memory_budget": 0.68, "device": "cpu"}, True), (None, {"memory_budget": 8.0, "device": "cuda"}, True),
    (None, {"memory_budget": 8.0, "device": "cpu"}, False), (4.0, {"memory_budget": 4.0, "device": "cuda"}, True),
    (4.0, {"memory_budget": 8.0, "device": "cuda"}, False),
])  # fmt: skip
def test_the_default_budget_is_that_of_the_device(asked, earlier, same):
    engine = Interpretability(memory_budget=asked)
    trained = TrainedModel(Path("run/checkpoints/last.ckpt"))
    vars(trained)["checkpoint"] = {"global_step": 3}
    request = Request(trained, engine)
    result = request.identity | {"protocol": engine.settings | earlier} | NOTHING
    assert request.is_done(result) == same
    few = replace(request, limit=4)
    assert not few.is_done(result | few.identity)  # it does not say that the images were drawn by class


@pytest.mark.parametrize(("asked", "measured"), [(1000, 1000), (None, None), (2000, None), (3000, None)])
def test_the_number_of_attacked_images_counts_where_some_are_not(asked, measured):
    trained = TrainedModel(Path("run/checkpoints/last.ckpt"))
    vars(trained)["checkpoint"] = {"global_step": 3}
    request = Request(trained, Interpretability(attacked=asked))
    protocol = request.engine.settings | {"memory_budget": 0.68, "device": "cpu"}
    for stored in (1000, None):
        result = request.identity | NOTHING | {"protocol": protocol | ({"attacked": stored} if stored else {})}
        attack = {"metrics": {"alignment/misalignment_ac": {}}}
        assert request.is_done(result | attack) == (stored == measured)
        assert request.is_done(result) == (stored is None)


def test_a_result_of_few_images_does_not_answer_where_all_are_needed():
    trained = TrainedModel(Path("run/checkpoints/last.ckpt"))
    vars(trained)["checkpoint"] = {"global_step": 3, "hyper_parameters": {}}
    request = Request(trained, Interpretability("alignment/consistency,general"), limit=20)
    protocol = request.engine.settings | {"memory_budget": 0.68, "device": "cpu", "drawn": "stratified by class"}
    measured = {"metrics": {"alignment/consistency": {}, "general/f1": {}}, "timing": {"images": 20}}
    for whole, done in ((["alignment/consistency"], True), (None, False)):
        result = request.identity | measured | {"protocol": protocol | ({"whole_split": whole} if whole else {})}
        assert request.is_done(result) == done
    assert request.is_done(result | {"metrics": {"general/f1": {}}})  # does not apply to this model
    names = [replace(request, engine=Interpretability(suite))._folders()[1].name for suite in ("general", "alignment")]
    assert names == ["last-step3-test-general-limit=20", "last-step3-test-alignment-limit=20-whole"]


def test_the_command_has_the_defaults_of_the_engine():
    """It states them again, because its help must not import the engine."""
    command, engine = (signature(function).parameters for function in (evaluate.run, Interpretability))
    assert Interpretability().requested == [command["suite"].default]
    shared = (command.keys() & engine.keys()) - {"suite"}
    assert shared == {"attacked", "explainer", "interface", "memory_budget", "seed", "top_k", "variant"}
    assert all(command[name].default == engine[name].default for name in shared)


class Gone:
    @property
    def num_classes(self):
        raise FileNotFoundError("Expected argument `root` to be a folder, but there is none at photos.")


@pytest.mark.parametrize("changes", [{}, {"root": "photos"}])
def test_without_its_data_a_checkpoint_names_what_needs_none(changes, monkeypatch):
    monkeypatch.setattr("protometry.evaluation.trained_model.datamodule_from", lambda *args, **options: Gone())
    trained = TrainedModel(Path("run/last.ckpt"), changes)
    vars(trained)["checkpoint"] = {}
    with pytest.raises(FileNotFoundError, match="none at photos") as error:
        trained.data()
    assert ("`--data_root DIR`" in str(error.value)) == (not changes)
    assert "`protometry export run/last.ckpt --format pt2`" in str(error.value)
