"""The one table of fields says what samples, batches and flags are."""

import hashlib
from dataclasses import fields

import pytest
import torch

from protometry.datamodules.sample import FIELDS, Batch, Capabilities, Sample, sample_key

FLAGS = [field.name for field in fields(Capabilities)]


def test_samples_and_batches_have_the_fields_and_ids():
    for kind in (Sample, Batch):
        assert kind.__annotations__.keys() == FIELDS.keys() | {"sample_id"}


def test_a_field_is_required_or_announced_by_a_flag():
    """Only what loaders add on demand is neither."""
    unannounced = {name for name, field in FIELDS.items() if not field.flags}
    assert unannounced == {"image", "label", "sample_key", "second_view"}


def test_every_flag_announces_a_field_or_something_of_the_whole_data_set():
    announced = {flag for field in FIELDS.values() for flag in field.flags}
    assert announced == set(FLAGS) - {"interventions", "class_attributes"}


def test_types_and_sides_are_known():
    assert {side for field in FIELDS.values() for side in field.shape} == {2, 3, 4, "H", "W", "K", "L", "N"}
    assert {field.dtype for field in FIELDS.values()} == {torch.float32, torch.int64, torch.bool, torch.uint8}
    assert FIELDS["second_view"] == FIELDS["image"]


@pytest.mark.parametrize("name", ["1", "polar bear/in snow/ä.jpg"])
def test_the_key_is_the_beginning_of_a_hash_without_its_sign(name):
    digest = hashlib.sha256(name.encode()).hexdigest()
    assert sample_key(name) == int(digest[:16], 16) % 2**63


def test_a_flag_is_missing_for_a_reason():
    flags = Capabilities(context=True, part_points="none drawn", label_map=False)
    result = [flags.missing(name) for name in ("context", "part_points", "label_map", "object_mask")]
    assert result == [None, "none drawn", "not available", "no segmentations"]
    assert all(Capabilities().missing(name) for name in FLAGS)
    with pytest.raises(ValueError, match=r"`flag` to be one of \['multi_label', .*, but got 'masks'"):
        flags.missing("masks")
