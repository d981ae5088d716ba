"""SketchBirds as a data module: presets, splits, capability flags and class-level tables."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.base import SPLITS, ImageDataModule, Split
from datamodules.sample import Capabilities
from datamodules.sketch_birds.bank import LABEL_MAP_CODES, POINT_GROUPS, POINT_NAMES
from datamodules.sketch_birds.class_table import all_attributes, make_class_table
from datamodules.sketch_birds.dataset import SketchBirdsDataset, Targets
from datamodules.sketch_birds.presets import check_choice, preset_numbers
from datamodules.sketch_birds.scene import Knobs, kept_parts, scene_uniforms


class SketchBirds(ImageDataModule):
    """Procedural vector birds with parts, masks, points, attributes and interventions; no files, no download.

    Deviations from FunnyBirds (Hesse et al. 2023), whose parts, class rules and soft targets it follows: flat drawings
    in side view, background contexts, occluders and attributes. Validation follows the training distribution.

    Args:
        preset: "tiny", "small", "default" or "full"; every number left at None comes from it.
        num_birds: number of bird classes.
        image_size: side of the square images in pixels, or ``(H, W)``.
        train_size: number of training images.
        val_size: number of validation images.
        test_size: number of test images.
        part_removal: probability that a training image loses k ~ U{0..5} parts; validation and test are complete.
        contexts: number of background contexts, 0 for one fixed background.
        context_correlation: rho in p(context | class) = (1 - rho) / n + rho [context preferred], in training and
            validation; class c prefers context c mod n.
        test_context: "uniform" makes context and class independent in test, "anti" prefers the opposite context there.
        occluders: probability that a polygon covers a random part.
        profile: probability that far eye and far wing are left out.
        task: "classes" (one label, soft targets) or "attributes" (multi-label: which attributes the image shows).
        scene_seed: seed of the data itself; ``seed`` only orders the training images.
        batch_size: images per process and training step.
        eval_batch_size: images per process and evaluation step; ``batch_size`` if None.
        num_workers: loader processes.
        seed: seed of the run.

    Raises:
        ValueError: if a number is out of range or no class table keeps the rules.

    Example:
        >>> birds = SketchBirds("tiny")
        >>> birds.num_classes, birds.image_size, len(birds.dataset("train")), birds.class_names[0]
        (8, (64, 64), 256, 'bird 0')
        >>> birds.class_concepts.shape, birds.part_group_names[1]
        (torch.Size([8, 20]), 'beak')
    """

    def __init__(  # noqa: PLR0913 - a command line sets these one by one: --data.preset small --data.image_size 64
        self,
        preset: Literal["tiny", "small", "default", "full"] = "small",
        num_birds: int | None = None,
        image_size: int | tuple[int, int] | None = None,
        train_size: int | None = None,
        val_size: int | None = None,
        test_size: int | None = None,
        part_removal: float = 0.5,
        contexts: int = 0,
        context_correlation: float = 0.9,
        test_context: Literal["uniform", "anti"] = "uniform",
        occluders: float = 0.0,
        profile: float = 0.5,
        task: Literal["classes", "attributes"] = "classes",
        scene_seed: int = 0,
        batch_size: int = 64,
        eval_batch_size: int | None = None,
        num_workers: int = 0,
        seed: int = 0,
    ) -> None:
        sizes = {"train_size": train_size, "val_size": val_size, "test_size": test_size}
        numbers = preset_numbers(preset, num_birds=num_birds, image_size=image_size, **sizes)
        super().__init__(numbers.image_size, batch_size, eval_batch_size, num_workers, seed)
        check_choice("task", task, ("classes", "attributes"))
        check_choice("test_context", test_context, ("uniform", "anti"))
        if scene_seed < 0:
            raise ValueError(f"Expected argument `scene_seed` to be at least 0, but got {scene_seed}.")
        if test_context == "anti" and contexts < 2:
            raise ValueError(f"Expected argument `contexts` to be at least 2 for anti contexts, but got {contexts}.")
        knobs = Knobs(0.0, contexts, context_correlation, 0, occluders, profile)
        anti = replace(knobs, context_offset=contexts // 2)
        self._splits = {
            "train": (numbers.train_size, replace(knobs, part_removal=part_removal)),
            "val": (numbers.val_size, knobs),
            "test": (numbers.test_size, anti if test_context == "anti" else replace(knobs, context_correlation=0.0)),
        }
        self.task = task
        self._targets: Targets = "attributes" if task == "attributes" else "soft" if part_removal else "label"
        self.scene_seed = scene_seed
        self._table = make_class_table(numbers.num_birds, numbers.variants, scene_seed)
        attributes = all_attributes()
        self._shown = np.stack([attributes.of(row.tolist()).any(axis=0) for row in self._table])
        self._used: NDArray[np.bool_] = np.any(self._shown, axis=0)
        self._attributes = attributes.select(self._used)

    @property
    def num_classes(self) -> int:
        """Number of logits: birds, or attributes in the attribute task."""
        return len(self.class_names)

    @property
    def class_names(self) -> list[str]:
        """Names of the logits."""
        if self.task == "attributes":
            return self.concept_names
        return [f"bird {number}" for number in range(len(self._table))]

    def dataset(self, split: Split) -> SketchBirdsDataset:
        """The samples of one split.

        Args:
            split: "train" carries image, targets and concepts only; "projection" is the same images with every field.
        """
        check_choice("split", split, SPLITS)
        source = "train" if split == "projection" else split
        length, knobs = self._splits[source]
        return SketchBirdsDataset(
            self._table,
            self._attributes,
            source,
            length,
            self.image_size,
            knobs,
            self.scene_seed,
            targets=self._targets,
            spatial=split != "train",
        )

    def capabilities(self, split: Split) -> Capabilities:
        """Which optional fields the split's samples have.

        Soft targets are a matter of the whole data set: validation and test images are complete, so theirs are one-hot.
        """
        attributes = self.task == "attributes"
        spatial = "training samples carry no spatial fields; use the projection split" if split == "train" else True
        soft = "the attribute task has no soft targets" if attributes else "`part_removal` is 0"
        return Capabilities(
            multi_label=True if attributes else "one label per image",
            soft_targets=True if self._targets == "soft" else soft,
            object_mask=spatial,
            part_points=spatial,
            label_map=spatial,
            concepts_class=True,
            concepts_image=True,
            concept_certainty=spatial,
            bounding_box=spatial,
            context=True if self._splits["train"][1].contexts else "`contexts` is 0",
            interventions=True,
            class_attributes=True,
        )

    @property
    def concept_names(self) -> list[str]:
        """The L attributes some class has, such as "tail::red wedge"."""
        return list(self._attributes.names)

    @property
    def class_concepts_binary(self) -> Tensor:
        """``(birds, L)`` bool: the attributes of a complete bird; the rows are birds in the attribute task too."""
        return torch.from_numpy(self._shown[:, self._used])

    @cached_property
    def class_concepts(self) -> Tensor:
        """``(birds, L)`` float in 0..1: how often the attribute is present over the training images of a class."""
        length, knobs = self._splits["train"]
        shown = np.stack([self._attributes.of(row.tolist()) for row in self._table])
        present = np.zeros((len(self._table), shown.shape[-1]))
        for index in range(length):
            kept = np.array(kept_parts(scene_uniforms(self.scene_seed, "train", index), knobs.part_removal))
            label = index % len(self._table)
            present[label] += (shown[label] & kept[:, None]).any(axis=0)
        images = np.bincount(np.arange(length) % len(self._table))
        return torch.from_numpy(present / images[:, None]).float()

    @property
    def class_attributes(self) -> Tensor:
        """``(birds, 40)`` float 0 or 1: all attributes, also those no class of the preset has."""
        return torch.from_numpy(self._shown).float()

    @property
    def concept_to_part(self) -> Tensor:
        """``(L,)`` int64 index into ``part_group_names``, -1 for attributes of the whole bird."""
        return torch.from_numpy(self._attributes.group)

    @property
    def part_names(self) -> list[str]:
        """The 15 points of CUB-200-2011, in its order."""
        return list(POINT_NAMES)

    @property
    def part_group_names(self) -> list[str]:
        """The 12 points with left and right merged."""
        return list(POINT_GROUPS)

    @property
    def part_to_group(self) -> Tensor:
        """``(15,)`` int64 index into ``part_group_names``."""
        return torch.tensor([POINT_GROUPS.index(name.split()[-1]) for name in POINT_NAMES])

    @property
    def label_map_codes(self) -> dict[str, tuple[int, ...]]:
        """Codes of each part in ``label_map``; 32 + j is background object j or the occluder."""
        return dict(LABEL_MAP_CODES)

    @property
    def class_weights(self) -> Tensor:
        """``(K,)`` float: n / (K n_c) over the training images; all ones in the attribute task."""
        if self.task == "attributes":
            return torch.ones(self.num_classes)
        length = self._splits["train"][0]
        images = torch.bincount(torch.arange(length) % self.num_classes)
        return length / (self.num_classes * images)
