"""The evaluation callback: what it computes, skips, refuses and logs. The model answers from a table."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from protometry.callbacks import Interpretability
from protometry.datamodules.sample import Capabilities, ClassTables
from protometry.explanations import IntegratedGradients, Random, Upsample
from protometry.explanations.choice import description
from protometry.lightning_modules.bases.geometry import Geometry
from protometry.lightning_modules.contract import ModelOutput, UnitTable

LOGITS = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0], [0.0, 2.0, 1.0], [2.0, 0.0, 1.0]])
LABELS = torch.tensor([0, 2, 1, 1])  # the last one is wrong
NAMES = [f"bird {i}" for i in range(4)]


class Model(nn.Module):
    """Two units of one model, or whatever its table says; an image's first pixel names its row."""

    device = torch.device("cpu")
    input_std = torch.ones(3, 1, 1)
    geometry = Geometry((8, 8), (4, 4), None, None, None)

    def __init__(self, weight=None, logits=LOGITS):
        super().__init__()
        weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]) if weight is None else weight
        active = torch.ones(2, dtype=torch.bool)
        self.table = UnitTable("prototype", active, torch.ones(2, 3, dtype=torch.bool), "max", weight=weight)
        self.outputs = {
            "logits": logits,
            "scores": torch.arange(2.0 * len(logits)).view(-1, 2) + 1,
            "maps": torch.arange(8.0 * len(logits)).view(-1, 2, 2, 2),
        }
        self.logged = {}
        self.eval()

    def forward(self, images):
        rows = (images[:, 0, 0, 0] * 255).round().long()
        return ModelOutput(**{name: values[rows] for name, values in self.outputs.items()})

    def probabilities(self, logits):
        return logits.softmax(dim=1)

    def units(self):
        return self.table

    def parameter_groups(self):
        return {}

    def log(self, key, value, **kwargs):
        self.logged[key] = value


def batches(size=4, images=4, same=False):
    for part in torch.arange(images).split(size):
        pixels = (part * (not same) / 255)[:, None, None, None].expand(-1, 3, 8, 8).contiguous()
        yield {
            "image": pixels,
            "second_view": pixels,
            "sample_id": [f"bird {i}" for i in part],
            "sample_key": part,
            "label": LABELS[part % 4],
        }


def trainer(names=NAMES, **capabilities):
    data = SimpleNamespace(
        num_classes=3,
        image_size=(8, 8),
        loading=SimpleNamespace(split="test", classes=None),
        configure_loaders=lambda **changes: None,
        tables=ClassTables(),
        capabilities=lambda split: Capabilities(**capabilities),
        dataset=lambda split: Dataset(names),
        stamp=None,
    )
    return SimpleNamespace(datamodule=data, loggers=[], current_epoch=0, state=SimpleNamespace(fn="fit"))


class Dataset:
    def __init__(self, names):
        self.sample_ids = list(names)

    def __len__(self):
        return len(self.sample_ids)


def one_pass(engine, model, stage="test", run=None, **options):
    run = run or trainer()
    engine.setup(run, model, "test" if stage == "test" else "fit")
    with torch.inference_mode():
        getattr(engine, f"on_{stage}_start")(run, model)
        for index, batch in enumerate(batches(**options)):
            getattr(engine, f"on_{stage}_batch_end")(run, model, None, batch, index)
        getattr(engine, f"on_{stage}_epoch_end")(run, model)
    return engine.evaluation


def test_images_per_forward_are_recorded_and_do_not_depend_on_the_data():
    protocol = one_pass(Interpretability(["general/accuracy"]), Model()).protocol
    assert (protocol["images_per_forward"], protocol["memory_budget"], protocol["device"]) == (32, 0.68, "cpu")


@pytest.mark.parametrize("size", [1, 3, 4])
def test_the_entries_of_an_evaluation(size):
    evaluation = one_pass(Interpretability(["general/accuracy", "compactness/npr"]), Model(), size=size)
    accuracy, npr = evaluation.metrics["general/accuracy"], evaluation.metrics["compactness/npr"]
    assert list(accuracy) == ["value", "ci95", "n", "skipped", "unit", "higher_is_better", "averaged_over"]
    assert (accuracy["averaged_over"], npr["averaged_over"]) == ("image", "none")
    assert (accuracy["value"], accuracy["n"], accuracy["skipped"]) == (0.75, 4, 0)
    assert accuracy["ci95"][0] < 0.75 < accuracy["ci95"][1]
    assert npr["value"] == pytest.approx(0.5)  # one negative weight, two positive ones
    assert evaluation.skipped == {}
    assert evaluation.explainer is None


@pytest.mark.parametrize("size", [1, 3, 4])
def test_one_picture_all_over_tells_nothing_of_explanations(size):
    asked = ["general/accuracy", "compactness", "continuity", "contrastivity"]
    for same in (True, False):
        evaluation = one_pass(Interpretability(asked), Model(), size=size, same=same)
        reason = "all 4 images are the same picture"
        told = {key for key, entry in evaluation.metrics.items() if entry.get("reason") == reason}
        of_model = {key for key in evaluation.metrics if evaluation.metrics[key]["averaged_over"] == "none"}
        assert told == (set(evaluation.metrics) - of_model - {"general/accuracy"} if same else set())
        assert len(told) > 10 or not same
        assert all(math.isnan(evaluation.metrics[key]["value"]) for key in told)
        assert {evaluation.metrics[key]["n"] for key in told} <= {0}
    alone = one_pass(Interpretability(["contrastivity/plc"]), Model(), run=trainer(NAMES[:1]), images=1)
    assert "reason" not in alone.metrics["contrastivity/plc"]


def test_an_undefined_value_has_a_reason():
    engine = Interpretability(["continuity/psc"])
    model = Model()
    model.outputs["scores"] = -model.outputs["scores"]
    entry = one_pass(engine, model).metrics["continuity/psc"]
    assert (entry["n"], entry["reason"]) == (0, "nothing it could measure among 8 entries")


def test_the_value_of_every_image_is_kept():
    evaluation = one_pass(Interpretability(["general/accuracy", "compactness/local_size"]), Model(), size=3)
    assert evaluation.images == {
        key: {"general/accuracy": float(key < 3), "compactness/local_size": 2.0} for key in range(4)
    }


def test_validation_and_test_log_under_their_keys():
    engine, model = Interpretability(["general/accuracy"]), Model()
    one_pass(engine, model, "validation")
    assert model.logged["val/general/accuracy"] == 0.75
    assert {key.split("/")[1] for key in model.logged} == {"general"}
    model.logged.clear()
    one_pass(engine, model)
    assert model.logged == {"general/accuracy": 0.75}


def test_the_validation_suite_comes_every_n_epochs():
    engine = Interpretability(validation_suite=["compactness/local_size"], every_n_epochs=3)
    model, run, seen = Model(), trainer(), []
    for run.current_epoch in range(6):
        model.logged.clear()
        one_pass(engine, model, "validation", run)
        seen.append("val/compactness/local_size" in model.logged)
        assert "val/general/f1" in model.logged
    assert seen == [False, False, True, False, False, True]
    run.state.fn, run.current_epoch = "validate", 0  # on its own, it computes the whole suite
    model.logged.clear()
    one_pass(engine, model, "validation", run)
    assert "val/compactness/local_size" in model.logged


def test_two_passes_do_not_mix():
    engine = Interpretability(["general/accuracy"])
    first = one_pass(engine, Model())
    second = one_pass(engine, Model(logits=LOGITS.flip(1)))
    assert (first.metrics["general/accuracy"]["value"], first.metrics["general/accuracy"]["n"]) == (0.75, 4)
    assert (second.metrics["general/accuracy"]["value"], second.metrics["general/accuracy"]["n"]) == (0.25, 4)


def test_what_does_not_apply_is_skipped_with_the_reason():
    model = Model()
    model.table = UnitTable("prototype", model.table.active, model.table.owner, "max")
    suite = ["general/top3_accuracy", "compactness/npr", "complexity", "contrastivity/apd_intra", "general/accuracy"]
    evaluation = one_pass(Interpretability([*suite, "localisation/energy"]), model)
    assert evaluation.skipped == {
        "general/top3_accuracy": "num_classes: top-3 accuracy needs more than 3 classes",
        "compactness/npr": "weight: the model has no weight matrix",
        "complexity/object_overlap": "object_mask: no segmentations",
        "complexity/background_overlap": "object_mask: no segmentations",
        "complexity/iord": "object_mask: no segmentations",
        "complexity/consistency": "part_points: no part annotations",
        "contrastivity/apd_intra": "vectors: the units of the model have no vectors",
        "localisation/energy": "object_mask|bounding_box: no segmentations; no bounding boxes",
    }
    assert list(evaluation.metrics) == ["general/accuracy"]


def test_a_suite_of_which_nothing_applies_is_refused():
    engine = Interpretability(["general/top3_accuracy", "localisation/energy", "localisation/energy"])
    assert engine.requested == ["general/top3_accuracy", "localisation/energy"]
    expected = "accuracy, localisation/energy does: num_classes: top-3 .*; object_mask.bounding_box: no segmentations"
    with pytest.raises(ValueError, match=expected):
        one_pass(engine, Model())


def test_fewer_units_than_asked_for_are_all_used():
    evaluation = one_pass(Interpretability(["contrastivity/plc"], top_k=5), Model())
    assert evaluation.protocol["units_per_image"] == 2
    assert evaluation.metrics["contrastivity/plc"]["n"] == 4


def test_without_an_active_unit_the_reason_is_given():
    model = Model()
    model.table = UnitTable("prototype", torch.zeros(2, dtype=torch.bool), model.table.owner, "max")
    suite = ["general/accuracy", "completeness/vlc", "continuity/plc", "alignment/misalignment_pac"]
    evaluation = one_pass(Interpretability(suite), model)
    assert list(evaluation.metrics) == ["general/accuracy"]
    assert evaluation.skipped == {
        "completeness/vlc": "explainer: no unit is active",
        "continuity/plc": "units: no unit is active",
        "alignment/misalignment_pac": "units: no unit is active",
    }


@pytest.mark.parametrize(("mask", "expected"), [(True, "mask"), ("no masks", "bounding box")])
def test_what_stands_for_the_object_is_declared(mask, expected):
    run = trainer(object_mask=mask, bounding_box=True)
    engine, model = Interpretability(["localisation"], explainer=Upsample()), Model()
    engine.setup(run, model, "test")
    engine.on_test_start(run, model)
    assert engine.evaluation.protocol["object"] == expected


def test_explainers_are_described_by_all_their_options():
    bases = [(0.1, 0.2, 0.3), torch.zeros(3, 2, 2), torch.eye(2).expand(3, 2, 2)]
    explainers = [Random(), Random(placement="geometry"), *(IntegratedGradients(baseline=base) for base in bases)]
    descriptions = [description(explainer) for explainer in explainers]
    assert descriptions[0] == "random(pattern=smooth, mode=bicubic, placement=resize, seed=0)"
    assert descriptions[2] == "ig(steps=50, baseline=[0.1, 0.2, 0.3])"
    assert len(set(descriptions)) == 5


def test_maps_below_zero_are_declared():
    model = Model()
    assert one_pass(Interpretability(["continuity/pac"]), model).protocol["signed_maps"] is False
    model.outputs["maps"] = model.outputs["maps"] - 20
    assert one_pass(Interpretability(["continuity/pac"]), model).protocol["signed_maps"] is True


# -- refusals ---------------------------------------------------------------------------------------------------------
def test_ten_of_many_samples_with_bad_outputs_are_named():
    model = Model(logits=torch.full((12, 3), torch.nan))
    with pytest.raises(ValueError, match=r"samples bird 0, .*, bird 9 "):
        one_pass(Interpretability(), model, "validation", size=12, images=12)


@pytest.mark.parametrize(("attacked", "expected"), [(3, {*NAMES[:3]}), (4, None), (None, None)])
def test_as_many_images_are_attacked_as_asked_for(attacked, expected):
    engine = Interpretability(attacked=attacked)
    engine.this_pass = SimpleNamespace(metrics=["alignment/misalignment_ac"])
    data = SimpleNamespace(loading=SimpleNamespace(limit=None), shown=lambda split, limit: Dataset(NAMES[:limit]))
    assert engine._attacked_ids(data, "test") == expected


def test_repeated_sample_ids_are_named():
    run = trainer(names=["bird 0", "bird 1", "bird 1", "bird 3"])
    with pytest.raises(ValueError, match=r"Expected every sample id of the test split once, but got 1 .* bird 1\."):
        one_pass(Interpretability(["general/accuracy"]), Model(), run=run)


def test_an_explainer_that_does_not_fit_is_refused():
    class Picky(Upsample):
        def supports(self, model):
            return "it has no backbone"

    with pytest.raises(ValueError, match="Expected argument `explainer` to support the model, but it has no backbone"):
        one_pass(Interpretability(["completeness/vlc"], explainer=Picky()), Model())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"suite": []}, "`suite` to name at least one metric, but got none"),
        ({"suite": ["genral"]}, r"`suite` to hold names among .*got .'genral'"),
        ({"validation_suite": ["genral"]}, r"`suite` to hold names among .*got .'genral'"),
        ({"top_k": 0}, "`top_k` to be at least 1, but got 0"),
        ({"every_n_epochs": 0}, "`every_n_epochs` to be at least 1, but got 0"),
        ({"seed": -1}, r"`seed` to be at least 0 and below 2\^32, but got -1"),
        ({"view": "papr"}, "`view` to be one of .* or null, but got 'papr'"),
        ({"noise": -0.1}, "`noise` to be from 0 to 1"),
        ({"noise": 1e300}, "`noise` to be from 0 to 1 .*, but got 1e.300"),
        ({"memory_budget": 0.0}, "`memory_budget` to be above 0 GiB"),
    ],
)
def test_bad_arguments_are_refused_at_once(arguments, message):
    with pytest.raises(ValueError, match=message):
        Interpretability(**arguments)


# -- loggers ----------------------------------------------------------------------------------------------------------
class Summary:
    def __init__(self):
        self.results = []

    def define_results(self, directions):
        self.results.append(dict(directions))


def test_directions_are_sent_once_to_loggers_with_a_summary():
    engine, model, summary, run = Interpretability(["general/accuracy"]), Model(), Summary(), trainer()
    run.loggers = [object(), summary]
    for _ in range(2):
        one_pass(engine, model, run=run)
    assert summary.results == [{"general/accuracy": True}, {}]
