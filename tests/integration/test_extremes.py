"""Default arguments, at the smallest and the largest values of what they depend on."""

from functools import partial
from itertools import product

import pytest
import torch

from protometry.callbacks.phases.phase_schedule import ACTIONS
from protometry.datamodules import ImageFolder, SketchBirds
from protometry.lightning_modules.contract import FitsConcepts
from protometry.lightning_modules.heads.sparse_head import vary
from protometry.metrics.suite import build, resolve
from tests.datamodules.registry import SETS
from tests.lightning_modules.registry import KINDS, options_of
from tests.lightning_modules.test_contract import after_every_action, assert_consistent, images, output_of
from tests.metrics.test_suite import facts
from tests.photo_trees import make_folders

NEEDED = {  # arguments without a default, with the fewest concepts
    "CEM": {"num_concepts": 1},
    "ConceptBottleneck": {"num_concepts": 1},
    "IntCEM": {"num_concepts": 1},
    "PosthocCBM": {"num_concepts": 2},
    "LabelFreeCBM": {"words": ["beak", "wing"], "embeddings": "none.npz"},
}
MODELS = {kind.__name__: partial(kind, **NEEDED.get(kind.__name__, {})) for kind in KINDS}
MODELS["BagNet"].keywords["backbone"] = {"name": "bagnet33", "width": 16}  # the default is slow


def smallest(build, **options):
    """The model for the smallest square images that it takes."""
    for side in (1, 8, 16, 33, 64):
        try:
            return build(image_size=(side, side), **options)
        except ValueError as error:
            if "`image_size`" not in str(error):
                raise
    raise AssertionError("no image is large enough")


def assert_decides(name, classes, side=None):
    """In every preset; their scores tell two images apart."""
    torch.manual_seed(0)
    build = partial(MODELS[name], num_classes=classes)
    model = (smallest(build) if side is None else build(image_size=(side, side))).eval()
    for preset, task in product(model.presets, model.tasks) if side is None else []:
        if (preset, task) == ("frozen", "multilabel"):
            continue
        other = build(image_size=model.image_size, preset=preset, task=task, **options_of(preset))
        other.phases().check(other.parameter_groups(), other.loss_terms(), [*ACTIONS, *other.actions])
    output = output_of(model, images(4, model.image_size))
    assert output.logits.isfinite().all()
    assert vary(output.extras.get("pooled", output.scores)).any()
    assert_consistent(model)


@pytest.mark.parametrize("name", MODELS)
def test_models_decide_between_two_classes(name):
    assert_decides(name, classes=2)


def assert_acts_on_two_classes(name, tmp_path):
    """Of the user's own photos."""
    data = ImageFolder(str(make_folders(tmp_path / "photos", {"train": 8, "val": 3})), image_size=40, batch_size=4)
    torch.manual_seed(0)
    options = {"num_features": 4} if name == "PIPNet" else {}  # each of more scores 0 before training
    model = MODELS[name](num_classes=data.num_classes, image_size=data.image_size, **options).eval()
    if isinstance(model, FitsConcepts):
        pytest.skip("these photos have no concepts")
    for action in after_every_action(model, tmp_path, data):
        assert_consistent(model)
        assert all(parameter.isfinite().all() for parameter in model.parameters()), action


@pytest.mark.parametrize("name", ["ProtoPNet", "PIPNet"])
def test_actions_on_two_classes(name, tmp_path):
    assert_acts_on_two_classes(name, tmp_path)


@pytest.mark.parametrize("name", SETS)
def test_data_modules_give_images(name, tmp_path):
    """Of one pixel and of 448; alone in a batch; in every fold, and without a validation part."""
    SETS[name].write(tmp_path / "root")
    for side, options in [(1, {"batch_size": 1}), (448, {})]:
        data = SETS[name].read(tmp_path / "root", image_size=side, **options)
        assert data.eval_batch_size == data.batch_size
        for split in ("train", "test"):
            assert data.dataset(split)[0]["image"].shape == (3, side, side)


@pytest.mark.parametrize("preset", ["tiny", "small", "default", "full"])
@pytest.mark.parametrize("side", [16, 448])
def test_birds_are_drawn(preset, side):
    birds = SketchBirds(preset, image_size=side)
    assert birds.dataset("train")[0]["image"].shape == (3, side, side)


@pytest.mark.parametrize(("classes", "units", "concepts", "side"), [(2, 1, 1, 8), (2, 50, 1, 448), (1000, 1, 30, 8)])
def test_metrics_are_built_or_say_why_not(classes, units, concepts, side):
    ids, one = torch.arange(units) % concepts, torch.zeros(concepts, dtype=torch.int64)
    known = facts(
        num_classes=classes, image_size=(side, side), active=torch.ones(units, dtype=torch.bool),
        owner=torch.ones(units, classes, dtype=torch.bool), weight=torch.ones(classes, units),
        vectors=torch.eye(units), concepts=ids, unit_concepts=ids, concept_order=torch.arange(concepts),
        concept_to_part=one, concept_to_group=one, class_concepts=torch.ones(classes, concepts),
        class_attributes=torch.ones(classes, 1),
    )  # fmt: skip
    suite = ["all", "concepts_full"]
    built, skipped = build(suite, known)
    assert {*built, *skipped} == set(resolve(suite))


def test_no_metric_of_sanity_shows_images_for_units_that_are_not_there():
    """A tree that is pruned to one leaf has none."""
    units = {"active": torch.zeros(4, dtype=torch.bool), "owner": torch.ones(4, 2, dtype=torch.bool)}
    built, skipped = build(["sanity"], facts(num_classes=2, weight=torch.ones(2, 4), **units))
    assert {*built} <= {"sanity/shortcut_success"}
    assert "units: no unit is active" in skipped["sanity/cell_alone"]
