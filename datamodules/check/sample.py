"""The check of one sample against the contract of :mod:`protometry.datamodules.sample`: keys, types, shapes, ranges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.sample import FIELDS, Capabilities, Field, Sample, sample_key

REQUIRED = {"image", "label", "sample_key"}
# codes of a label map: background, body and parts, from 32 on objects, 255 unmatched
FIRST_PART, LAST_PART, FIRST_OBJECT = 1, 9, 32


def field_sizes(data: ImageDataModule) -> dict[str, int]:
    """The sizes that a data module announces: image H and W, logits K, points N, concepts L; call ``setup`` first."""
    height, width = data.image_size
    points, concepts = len(data.tables.part_names), len(data.tables.concept_names)
    return {"H": height, "W": width, "K": data.num_classes, "N": points, "L": concepts}


def sample_problems(sample: Sample, flags: Capabilities, sizes: Mapping[str, int]) -> list[str]:
    """What is wrong with a sample, a sentence per problem; ranges are looked at once keys, types and shapes are right.

    Example:
        >>> from protometry.datamodules import SketchBirds
        >>> birds = SketchBirds("tiny")
        >>> sample_problems(birds.dataset("train")[0], birds.capabilities("train"), field_sizes(birds))
        []
        >>> sample_problems(birds.dataset("train")[0], birds.capabilities("test"), field_sizes(birds))[0]
        '`bounding_box` is announced but missing'
    """
    keys = set(sample)
    expected = {"sample_id"} | {name for name, field in FIELDS.items() if _is_announced(name, field, flags)}
    problems = [f"`{key}` is announced but missing" for key in sorted(expected - keys)]
    problems += [f"`{key}` is there but not announced" for key in sorted(keys - expected)]
    values: dict[str, Any] = dict(sample)
    for name, field in FIELDS.items():
        value, shape = values.get(name), tuple(sizes.get(str(side), side) for side in field.shape)
        if name in keys and not (isinstance(value, Tensor) and (value.dtype, value.shape) == (field.dtype, shape)):
            got = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            problems.append(f"`{name}` is {got}, expected {field.dtype} {shape}")
    return problems or [*_wrong_ids(sample, flags, sizes), *_wrong_targets(sample), *_wrong_places(sample, sizes)]


def _is_announced(name: str, field: Field, flags: Capabilities) -> bool:
    if not field.flags:
        return name in REQUIRED
    return any(flags.missing(flag) is None for flag in field.flags)


def _wrong_ids(sample: Sample, flags: Capabilities, sizes: Mapping[str, int]) -> Iterator[str]:
    image, label = sample["image"], int(sample["label"])
    if not ((image >= 0) & (image <= 1)).all():
        yield "`image` is not in 0..1"
    if label < 0 or (flags.missing("multi_label") and label >= sizes["K"]):
        yield f"`label` is {label}, expected 0 to {sizes['K'] - 1}"
    if not isinstance(sample["sample_id"], str) or not sample["sample_id"]:
        yield f"`sample_id` is {sample['sample_id']!r}, expected a name"
    elif int(sample["sample_key"]) != sample_key(sample["sample_id"]):
        yield "`sample_key` is not the hash of `sample_id`"


def _wrong_targets(sample: Sample) -> Iterator[str]:
    if "class_targets" in sample:
        targets, label = sample["class_targets"], int(sample["label"])
        if not (targets >= 0).all() or abs(float(targets.sum()) - 1) > 1e-5:
            yield "`class_targets` is not a distribution"
        elif 0 <= label < len(targets) and targets[label] == 0:
            yield "`class_targets` has no share for `label`"
    certainties: dict[str, Any] = {name: value for name, value in sample.items() if name.endswith("_certainty")}
    for name, certainty in certainties.items():
        if (certainty > 4).any():
            yield f"`{name}` is up to {int(certainty.max())}, expected 0 to 4"
    if "context" in sample and int(sample["context"]) < 0:
        yield f"`context` is {int(sample['context'])}, expected 0 or more"


def _wrong_places(sample: Sample, sizes: Mapping[str, int]) -> Iterator[str]:
    height, width = sizes["H"], sizes["W"]
    if "bounding_box" in sample:
        x0, y0, x1, y1 = sample["bounding_box"].tolist()
        if not (0 <= x0 <= x1 <= width - 1 and 0 <= y0 <= y1 <= height - 1):
            yield f"`bounding_box` {[x0, y0, x1, y1]} is not a box inside {width}x{height} pixels"
    if "part_points" in sample:
        points, visible = sample["part_points"], sample["part_visible"]
        inside = ((points >= 0) & (points < torch.tensor([width, height]))).all(dim=1)
        if not (inside | ~visible).all():
            yield f"`part_points` {points[visible & ~inside][0].tolist()} is visible outside {width}x{height} pixels"
        if points[~visible].any():
            yield "`part_points` of invisible parts are not (0, 0)"
    if "label_map" in sample:
        codes = sample["label_map"]
        if ((codes > LAST_PART) & (codes < FIRST_OBJECT)).any():
            yield f"`label_map` has codes between {LAST_PART} and {FIRST_OBJECT}"
        if (
            "object_mask" in sample
            and (sample["object_mask"] != ((codes >= FIRST_PART) & (codes < FIRST_OBJECT))).any()
        ):
            yield "`object_mask` is not where `label_map` shows the object"


def same_sample(first: Sample, second: Sample) -> bool:
    """Whether two samples have the same keys and equal values."""
    one, two = dict(first), dict(second)
    return one.keys() == two.keys() and all(
        torch.equal(value, other) if isinstance(value, Tensor) and isinstance(other, Tensor) else value == other
        for value, other in ((one[key], two[key]) for key in one)
    )
