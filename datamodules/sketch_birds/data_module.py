"""The data module of SketchBirds: presets, splits and capability flags."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

from torch import Tensor

from protometry.datamodules import splits
from protometry.datamodules.arguments import check_choice
from protometry.datamodules.base import ImageDataModule
from protometry.datamodules.sample import Capabilities, ClassTables
from protometry.datamodules.sketch_birds.dataset import SketchBirdsDataset, Targets, class_tables
from protometry.datamodules.sketch_birds.presets import preset_numbers
from protometry.datamodules.sketch_birds.scene import Knobs
from protometry.datamodules.splits import SPLITS, Split


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
        loading: the other arguments of :class:`.ImageDataModule`.

    Raises:
        ValueError: if a number is out of range or no class table keeps the rules.

    Example:
        >>> birds = SketchBirds("tiny")
        >>> birds.num_classes, birds.image_size, len(birds.dataset("train")), birds.class_names[0]
        (8, (64, 64), 256, 'bird 0')
        >>> birds.tables.class_concepts.shape, birds.tables.part_group_names[1]
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
        **loading: Any,
    ) -> None:
        sizes = {"train_size": train_size, "val_size": val_size, "test_size": test_size}
        numbers = preset_numbers(preset, num_birds=num_birds, image_size=image_size, **sizes)
        super().__init__(image_size=numbers.image_size, **loading)
        check_choice("task", task, ("classes", "attributes"))
        check_choice("test_context", test_context, ("uniform", "anti"))
        if scene_seed < 0:
            raise ValueError(f"Expected argument `scene_seed` to be at least 0, but got {scene_seed}.")
        if test_context == "anti" and contexts < 2:
            raise ValueError(f"Expected argument `contexts` to be at least 2 for anti contexts, but got {contexts}.")
        knobs = Knobs(0.0, contexts, context_correlation, 0, occluders, profile)
        anti = replace(knobs, context_offset=contexts // 2)
        self._knobs = {
            "train": replace(knobs, part_removal=part_removal),
            "val": knobs,
            "test": anti if test_context == "anti" else replace(knobs, context_correlation=0.0),
        }
        self.task = task
        self.scene_seed = scene_seed
        self._numbers = numbers
        self._targets: Targets = "soft" if part_removal else "label"
        if task == "attributes":
            self._targets = "attributes"
        self._datasets: dict[Split, SketchBirdsDataset] = {}
        self._class_table, _, self._tables = class_tables(numbers.num_birds, numbers.variants, scene_seed)

    @property
    def num_classes(self) -> int:
        """Number of logits: birds, or attributes in the attribute task."""
        return len(self.class_names)

    @property
    def class_names(self) -> list[str]:
        """Names of the logits."""
        if self.task == "attributes":
            return self._tables.concept_names
        return [f"bird {number}" for number in range(len(self._class_table))]

    @property
    def num_concepts(self) -> int:
        """Number of attributes; ``tables`` would count them in all training images."""
        return len(self._tables.concept_names)

    @property
    def fixed_training_images(self) -> bool:
        """They are, unless there are two views of each."""
        return not self.loading.two_views

    def dataset(self, split: Split) -> SketchBirdsDataset:
        """The samples of one split; always the same object, which keeps those that it has drawn.

        Args:
            split: "train" carries image, targets and concepts only; "projection" is the same images with every field.
        """
        check_choice("split", split, SPLITS)
        if split not in self._datasets:
            source = "train" if split == "projection" else split
            self._datasets[split] = SketchBirdsDataset(
                self._numbers, source, self._knobs[source], self.scene_seed, self._targets, spatial=split != "train"
            )
        return self._datasets[split]

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
            context=True if self._knobs["train"].contexts else "`contexts` is 0",
            interventions=True,
            class_attributes=True,
        )

    @cached_property
    def tables(self) -> ClassTables:
        """Parts, points and attributes; the strength of a concept is how often training images of the class show it.

        The rows are birds in the attribute task too.
        """
        return replace(self._tables, class_concepts=self.dataset("train").class_concepts)

    @property
    def class_weights(self) -> Tensor:
        """``(K,)`` float: n / (K n_c) over the training images; all ones in the attribute task."""
        labels = [] if self.task == "attributes" else self.dataset("train").labels.tolist()
        return splits.class_weights(labels, self.num_classes)
