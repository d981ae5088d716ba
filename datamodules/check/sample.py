"""Whether a sample keeps the contract of :mod:`datamodules.sample`: keys, types, shapes, ranges, agreeing fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from datamodules.base import ImageDataModule
from datamodules.sample import Capabilities, Sample, sample_key

# optional key -> the flags one of which announces it
ANNOUNCED_BY: dict[str, tuple[str, ...]] = {
    "labels": ("multi_label",),
    "class_targets": ("soft_targets",),
    "object_mask": ("object_mask",),
    "part_points": ("part_points",),
    "part_visible": ("part_points",),
    "label_map": ("label_map",),
    "concepts": ("concepts_class", "concepts_image"),
    "concept_certainty": ("concept_certainty",),
    "bounding_box": ("bounding_box",),
    "context": ("context",),
}
REQUIRED = {"image", "label", "sample_id", "sample_key"}
# codes of a label map: background, body and parts, from 32 on objects, 255 unmatched
FIRST_PART, LAST_PART, FIRST_OBJECT = 1, 9, 32


@dataclass(frozen=True)
class Sizes:
    """How large the fields of a data module's samples are.

    Args:
        image: ``(H, W)`` pixels.
        classes: number of logits K.
        parts: number of points N.
        concepts: number of concepts L.
    """

    image: tuple[int, int]
    classes: int
    parts: int
    concepts: int

    @classmethod
    def of(cls, data: ImageDataModule) -> Sizes:
        """Sizes a data module announces; call ``setup`` first."""
        concepts: list[str] = getattr(data, "concept_names", [])
        return cls(data.image_size, data.num_classes, len(data.part_names), len(concepts))

    @property
    def fields(self) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
        """Type and shape of every tensor of a sample."""
        return {
            "image": (torch.float32, (3, *self.image)),
            "label": (torch.int64, ()),
            "sample_key": (torch.int64, ()),
            "labels": (torch.bool, (self.classes,)),
            "class_targets": (torch.float32, (self.classes,)),
            "object_mask": (torch.bool, self.image),
            "part_points": (torch.float32, (self.parts, 2)),
            "part_visible": (torch.bool, (self.parts,)),
            "label_map": (torch.uint8, self.image),
            "concepts": (torch.bool, (self.concepts,)),
            "concept_certainty": (torch.uint8, (self.concepts,)),
            "bounding_box": (torch.float32, (4,)),
            "context": (torch.int64, ()),
        }


def sample_problems(sample: Sample, flags: Capabilities, sizes: Sizes) -> list[str]:
    """What is wrong with a sample.

    Args:
        sample: one sample.
        flags: what its split announces.
        sizes: how large the fields should be.

    Returns:
        One sentence per problem; empty if the sample keeps the contract. Ranges are looked at once keys, types and
        shapes are right.

    Example:
        >>> from datamodules import SketchBirds
        >>> birds = SketchBirds("tiny")
        >>> sample_problems(birds.dataset("train")[0], birds.capabilities("train"), Sizes.of(birds))
        []
        >>> sample_problems(birds.dataset("train")[0], birds.capabilities("test"), Sizes.of(birds))[0]
        '`bounding_box` is announced but missing'
    """
    keys = set(sample)
    expected = REQUIRED | {key for key, names in ANNOUNCED_BY.items() if any(not flags.missing(n) for n in names)}
    found = [f"`{key}` is announced but missing" for key in sorted(expected - keys)]
    found += [f"`{key}` is there but not announced" for key in sorted(keys - expected)]
    fields: dict[str, Any] = dict(sample)
    for key, (dtype, shape) in sizes.fields.items():
        value = fields.get(key)
        if key in keys and not (isinstance(value, Tensor) and (value.dtype, tuple(value.shape)) == (dtype, shape)):
            got = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            found.append(f"`{key}` is {got}, expected {dtype} {shape}")
    return found or [*_wrong_ids(sample, flags, sizes), *_wrong_targets(sample), *_wrong_places(sample, sizes)]


def _wrong_ids(sample: Sample, flags: Capabilities, sizes: Sizes) -> Iterator[str]:
    image, label = sample["image"], int(sample["label"])
    if not ((image >= 0) & (image <= 1)).all():
        yield "`image` is not in 0..1"
    if label < 0 or (flags.missing("multi_label") and label >= sizes.classes):
        yield f"`label` is {label}, expected 0 to {sizes.classes - 1}"
    if not isinstance(sample["sample_id"], str) or not sample["sample_id"]:
        yield f"`sample_id` is {sample['sample_id']!r}, expected a name"
    elif int(sample["sample_key"]) != sample_key(sample["sample_id"]):
        yield "`sample_key` is not the hash of `sample_id`"


def _wrong_targets(sample: Sample) -> Iterator[str]:
    if "class_targets" in sample:
        targets, label = sample["class_targets"], int(sample["label"])
        if not (targets >= 0).all() or abs(float(targets.sum()) - 1) > 1e-5:
            yield "`class_targets` is no distribution"
        elif 0 <= label < len(targets) and targets[label] == 0:
            yield "`class_targets` has no share for `label`"
    if "concept_certainty" in sample and (sample["concept_certainty"] > 4).any():
        yield f"`concept_certainty` is up to {int(sample['concept_certainty'].max())}, expected 0 to 4"
    if "context" in sample and int(sample["context"]) < 0:
        yield f"`context` is {int(sample['context'])}, expected 0 or more"


def _wrong_places(sample: Sample, sizes: Sizes) -> Iterator[str]:
    height, width = sizes.image
    if "bounding_box" in sample:
        x0, y0, x1, y1 = sample["bounding_box"].tolist()
        if not (0 <= x0 <= x1 <= width - 1 and 0 <= y0 <= y1 <= height - 1):
            yield f"`bounding_box` {[x0, y0, x1, y1]} is no box inside {width}x{height} pixels"
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
