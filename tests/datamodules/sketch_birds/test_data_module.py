"""The data module: presets, overrides, tables, flags, loaders and the command line."""

import pytest
import torch

from protometry.datamodules.sketch_birds import SketchBirds


@pytest.mark.parametrize(("preset", "birds", "side", "sizes"), [
    ("tiny", 8, 64, (256, 64, 64)), ("small", 20, 128, (4000, 400, 400)), ("default", 50, 128, (10_000, 500, 500)),
    ("full", 50, 256, (50_000, 500, 500)),
])  # fmt: skip
def test_presets(preset, birds, side, sizes):
    module = SketchBirds(preset)
    assert module.num_classes == len(module.class_names) == birds
    assert module.image_size == (side, side)
    assert tuple(len(module.dataset(split)) for split in ("train", "val", "test")) == sizes
    assert len(module.dataset("projection")) == sizes[0]


def test_numbers_can_be_overridden():
    module = SketchBirds("small", num_birds=12, image_size=(48, 64), train_size=30, val_size=3, test_size=5)
    assert module.num_classes == 12
    assert tuple(len(module.dataset(split)) for split in ("train", "val", "test")) == (30, 3, 5)
    assert module.dataset("test")[0]["image"].shape == (3, 48, 64)


def test_scene_seed_is_not_the_seed_of_the_run():
    image = SketchBirds("tiny").dataset("val")[0]["image"]
    assert torch.equal(SketchBirds("tiny", seed=5).dataset("val")[0]["image"], image)
    assert not torch.equal(SketchBirds("tiny", scene_seed=5).dataset("val")[0]["image"], image)


def test_only_training_images_lose_parts():
    module = SketchBirds("tiny")
    removed = {s: sum(len(module.dataset(s).present(i)) < 5 for i in range(64)) for s in ("train", "val", "test")}
    assert removed["val"] == removed["test"] == 0
    assert removed["train"] > 10  # 5/12 of 64 are 27


def test_tables_of_all_variants():
    tables = SketchBirds("default", train_size=100).tables
    assert tables.class_concepts_binary.shape == tables.class_attributes.shape == (50, 40)
    assert (tables.concept_to_part >= 0).sum() == 37
    assert tables.part_to_group.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 6, 7, 8, 10, 11]
    names = "back beak belly breast crown forehead eye leg wing nape tail throat"
    assert " ".join(tables.part_group_names) == names
    assert tables.label_map_codes["eye"] == (3, 4)


def test_attributes_no_class_has_are_left_out():
    module = SketchBirds("tiny")
    # 10 variants, 2 tail shapes, 2 tail colours, 2 wing shapes, 2 wing colours, anything red or green
    assert len(module.tables.concept_names) == 20
    assert module.tables.class_concepts_binary.any(dim=0).all()
    assert module.tables.class_attributes.shape == (8, 40)
    assert module.tables.class_attributes.sum() == module.tables.class_concepts_binary.sum()


def test_class_concepts_are_training_frequencies():
    module = SketchBirds("tiny", train_size=100)
    samples = [module.dataset("train")[i] for i in range(100)]
    for label in range(8):
        rows = torch.stack([s["concepts"] for s in samples if s["label"] == label]).float()
        torch.testing.assert_close(module.tables.class_concepts[label], rows.mean(dim=0))
    complete = SketchBirds("tiny", train_size=100, part_removal=0.0)
    assert torch.equal(complete.tables.class_concepts, complete.tables.class_concepts_binary.float())


def test_class_weights():
    # 10 images of 8 classes: the first two classes have 2, so 10 / (8 * 2) and 10 / (8 * 1)
    module = SketchBirds("tiny", train_size=10)
    assert module.class_weights.tolist() == [0.625, 0.625, *[1.25] * 6]


def test_attribute_task():
    module = SketchBirds("tiny", task="attributes")
    assert (module.num_classes, module.class_names) == (20, module.tables.concept_names)
    assert module.class_weights.tolist() == [1.0] * 20
    assert module.tables.class_concepts_binary.shape == (8, 20)
    flags = module.capabilities("test")
    assert flags.multi_label is True
    assert flags.missing("soft_targets") == "the attribute task has no soft targets"


@pytest.mark.parametrize(("arguments", "flag", "reason"), [
    ({"part_removal": 0.0}, "soft_targets", "`part_removal` is 0"), ({}, "context", "`contexts` is 0"),
    ({}, "multi_label", "one label per image"),
])  # fmt: skip
def test_flags_say_which_number_is_to_blame(arguments, flag, reason):
    assert SketchBirds("tiny", **arguments).capabilities("test").missing(flag) == reason


def test_contexts_shift_between_training_and_test():
    module = SketchBirds("tiny", contexts=4, test_context="anti", context_correlation=1.0)
    for split, offset in (("train", 0), ("val", 0), ("test", 2)):
        samples = [module.dataset(split).scene(i) for i in range(16)]
        assert all(scene.context == (scene.label + offset) % 4 for scene in samples)
    uniform = SketchBirds("tiny", contexts=4, test_size=64)
    hits = sum(scene.context == scene.label % 4 for scene in map(uniform.dataset("test").scene, range(64)))
    assert 4 <= hits <= 32  # 16 expected, sd 3.5


@pytest.mark.parametrize(("arguments", "match"), [
    ({"test_context": "anti"}, "`contexts` to be at least 2 for anti contexts, but got 0"),
    ({"num_birds": 2}, "`num_birds` to be at least 3, but got 2"),
    ({"num_birds": 17}, "the rule 'classes differ in at least two parts' failed"),
    ({"train_size": 7}, "`train_size` to be at least 8, but got 7"),
    ({"test_size": 0}, "`test_size` to be at least 1, but got 0"),
    ({"image_size": 8}, "`image_size` to be at least 16, but got 8"),
    ({"part_removal": 1.5}, "`part_removal` to be in"),
    ({"scene_seed": -1}, "`scene_seed` to be at least 0, but got -1"),
])  # fmt: skip
def test_errors(arguments, match):
    with pytest.raises(ValueError, match=match):
        SketchBirds(**{"preset": "tiny", **arguments})
