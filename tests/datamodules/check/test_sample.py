"""Every way to break the sample contract is found, and named."""

import pytest
import torch

from protometry.datamodules import SketchBirds
from protometry.datamodules.check.sample import field_sizes, same_sample, sample_problems

NAN = float("nan")


@pytest.fixture(scope="module")
def birds():
    return SketchBirds("tiny", contexts=3)


def problems(birds, sample, split="test"):
    return sample_problems(sample, birds.capabilities(split), field_sizes(birds))


def replaced(key, value):
    return lambda sample: {**sample, key: value}


def without(key):
    return lambda sample: {name: value for name, value in sample.items() if name != key}


def shifted_point(sample):
    points = sample["part_points"].clone()
    points[sample["part_visible"].nonzero()[0, 0]] = torch.tensor([64.0, 3.0])
    return {**sample, "part_points": points}


def ghost_point(sample):
    points, visible = sample["part_points"].clone(), sample["part_visible"].clone()
    visible[4], points[4] = False, torch.tensor([1.0, 2.0])
    return {**sample, "part_points": points, "part_visible": visible}


def empty_mask(sample):
    return {**sample, "object_mask": torch.zeros_like(sample["object_mask"])}


def odd_code(sample):
    codes = sample["label_map"].clone()
    codes[sample["object_mask"]] = 10
    return {**sample, "label_map": codes}


@pytest.mark.parametrize(("change", "text"), [
    (without("label"), "`label` is announced but missing"),
    (without("part_visible"), "`part_visible` is announced but missing"),
    (replaced("labels", torch.ones(8, dtype=torch.bool)), "`labels` is there but not announced"),
    (replaced("second_view", torch.zeros(3, 64, 64)), "`second_view` is there but not announced"),
    (replaced("image", torch.zeros(3, 64, 32)), r"`image` is torch.float32 (3, 64, 32), expected torch.float32"),
    (replaced("image", torch.zeros(3, 64, 64).double()), "`image` is torch.float64"),
    (replaced("image", torch.full((3, 64, 64), 1.5)), "`image` is not in 0..1"),
    (replaced("image", torch.full((3, 64, 64), NAN)), "`image` is not in 0..1"),
    (replaced("label", 3), "`label` is int, expected torch.int64 ()"),
    (replaced("label", torch.tensor(8)), "`label` is 8, expected 0 to 7"),
    (replaced("label", torch.tensor(-1)), "`label` is -1, expected 0 to 7"),
    (replaced("sample_id", ""), "`sample_id` is '', expected a name"),
    (replaced("sample_id", 7), "`sample_id` is 7, expected a name"),
    (replaced("sample_id", "other"), "`sample_key` is not the hash of `sample_id`"),
    (replaced("class_targets", torch.full((8,), 0.25)), "`class_targets` is not a distribution"),
    (replaced("class_targets", torch.full((8,), NAN)), "`class_targets` is not a distribution"),
    (replaced("class_targets", torch.eye(8)[7]), "`class_targets` has no share for `label`"),
    (replaced("bounding_box", torch.tensor([0.0, 0, 64, 10])), "`bounding_box` [0.0, 0.0, 64.0, 10.0] is not"),
    (replaced("bounding_box", torch.tensor([9.0, 0, 8, 10])), "is not a box inside 64x64 pixels"),
    (replaced("bounding_box", torch.tensor([NAN, 0, 8, 10])), "is not a box inside 64x64 pixels"),
    (replaced("context", torch.tensor(-1)), "`context` is -1, expected 0 or more"),
    (replaced("concept_certainty", torch.full((20,), 5, dtype=torch.uint8)), "`concept_certainty` is up to 5"),
    (replaced("concepts", torch.ones(19, dtype=torch.bool)), "`concepts` is torch.bool (19,)"),
    (shifted_point, "`part_points` [64.0, 3.0] is visible outside 64x64 pixels"),
    (ghost_point, "`part_points` of invisible parts are not (0, 0)"),
    (empty_mask, "`object_mask` is not where `label_map` shows the object"),
    (odd_code, "`label_map` has codes between 9 and 32"),
])  # fmt: skip
def test_wrong_samples(birds, change, text):
    (result, *more) = problems(birds, change(birds.dataset("test")[0]))
    assert text in result
    assert not more


def test_same_sample(birds):
    dataset = birds.dataset("test")
    assert same_sample(dataset[3], dataset[3])
    assert not same_sample(dataset[3], dataset[11])
    assert not same_sample(dataset[3], without("context")(dataset[3]))
