"""SketchBirds as a plain data set: images rendered on demand, and every change the intervention interface allows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import default_collate, get_worker_info

from protometry.datamodules.arguments import check_choice
from protometry.datamodules.bird_parts import FIRST_OBJECT_CODE, LABEL_MAP_CODES, PART_NAMES, PARTS, RGB, target_set
from protometry.datamodules.dataset import ImageDataset, Index, epoch_and_position
from protometry.datamodules.sample import Batch, ClassTables, Sample, sample_key
from protometry.datamodules.sketch_birds.bank import POINT_GROUPS, POINT_NAMES
from protometry.datamodules.sketch_birds.class_table import Attributes, all_attributes, make_class_table
from protometry.datamodules.sketch_birds.intervention import Pose, changed_scene
from protometry.datamodules.sketch_birds.presets import Preset, preset_numbers
from protometry.datamodules.sketch_birds.render import draw_image, draw_label_map, locate_points, primitives
from protometry.datamodules.sketch_birds.scene import (
    SPLIT_CODES,
    Knobs,
    Scene,
    kept_parts,
    sample_scene,
    scene_uniforms,
)

Targets = Literal["soft", "label", "attributes"]
BUDGET = 2**28  # bytes of the samples that are kept


class SketchBirdsDataset(ImageDataset):
    """Procedural birds of one split; also an :class:`~protometry.datamodules.bird_parts.InterventionDataset`.

    Image ``i`` is a function of (seed, split, i), whatever the order, worker or process, and shows class ``i mod K``.
    A process draws a sample when it is asked for and keeps it while there is room in 256 MiB, which the workers of a
    loader share out. What an intervention changes is always drawn.

    Args:
        preset: "tiny", "small", "default" or "full", or its numbers; decides classes, image size and number of images.
        targets: "soft" adds ``class_targets``, uniform over T(x); "attributes" adds ``labels``; "label" adds nothing.
        spatial: whether samples carry masks, label maps, points, boxes and certainties.

    Raises:
        ValueError: if a name is unknown, or no class table keeps the rules.

    Example:
        >>> dataset = SketchBirdsDataset("tiny", "test")
        >>> sample = dataset[1]
        >>> sample["sample_id"], int(sample["label"]), tuple(sample["image"].shape), sample["label_map"].dtype
        ('test/00001', 1, (3, 64, 64), torch.uint8)
        >>> bool((dataset.intervene(1) == dataset.image(1)).all())
        True
    """

    def __init__(
        self,
        preset: str | Preset = "small",
        split: str = "test",
        knobs: Knobs | None = None,
        seed: int = 0,
        targets: Targets = "soft",
        spatial: bool = True,
    ) -> None:
        check_choice("split", split, SPLIT_CODES)
        numbers = preset_numbers(preset) if isinstance(preset, str) else preset
        self.class_table, self.attributes, self.tables = class_tables(numbers.num_birds, numbers.variants, seed)
        self.split = split
        self.image_size = numbers.frame
        self.knobs = knobs or Knobs()
        self.seed = seed
        self.targets = targets
        self.spatial = spatial
        self._length = numbers.sizes[split]
        self._rows: list[list[int]] = self.class_table.tolist()
        self._class_attributes = np.stack([self.attributes.of(row) for row in self._rows])
        self._kept: dict[int, Sample] = {}
        self._carriers = np.stack([table.any(axis=0) for table in self.attributes.by_part])

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_kept": {}}  # another process draws its own

    def __len__(self) -> int:
        return self._length

    def batch(self, indices: Sequence[Index]) -> Batch:
        """Some samples, whose images are uint8 pixels; every epoch shows the same ones."""
        return cast("Batch", default_collate([self._sample(epoch_and_position(index)[1]) for index in indices]))

    def _sample(self, i: int) -> Sample:
        if i in self._kept:
            return self._kept[i]
        sample, worker = self._drawn_sample(i), get_worker_info()
        size = sum(value.nbytes for value in sample.values() if isinstance(value, Tensor))
        if (len(self._kept) + 1) * size <= BUDGET // (worker.num_workers if worker else 1):
            self._kept[i] = sample
        return sample

    def _drawn_sample(self, i: int) -> Sample:
        scene = self.scene(i)
        polygons = primitives(scene)
        has_attribute = self._class_attributes[scene.label] & np.asarray(scene.kept)[:, None]
        concepts = torch.from_numpy(has_attribute.any(axis=0))
        sample_id = self.sample_id(i)
        sample: Sample = {
            "image": torch.from_numpy(draw_image(scene, polygons, self.image_size)),
            "label": torch.tensor(scene.label),
            "sample_id": sample_id,
            "sample_key": torch.tensor(sample_key(sample_id)),
            "concepts": concepts,
        }
        if self.targets == "attributes":
            sample["labels"] = concepts.clone()
        elif self.targets == "soft":
            targets = torch.from_numpy(target_set(self.class_table, scene.label, scene.kept)).float()
            sample["class_targets"] = targets / targets.sum()
        if self.knobs.contexts:
            sample["context"] = torch.tensor(scene.context)
        if self.spatial:
            self._add_spatial(sample, scene, draw_label_map(polygons, self.image_size), has_attribute)
        return sample

    def _add_spatial(
        self, sample: Sample, scene: Scene, label_map: NDArray[np.uint8], has_attribute: NDArray[np.bool_]
    ) -> None:
        pixels = label_map.tobytes()
        part_seen = np.array([any(code in pixels for code in LABEL_MAP_CODES[part]) for part in PART_NAMES])
        carriers = np.where(has_attribute.any(axis=0), has_attribute, self._carriers)
        certainty = np.where((carriers & part_seen[:, None]).any(axis=0), 4, 1).astype(np.uint8)
        mask = (label_map > 0) & (label_map < FIRST_OBJECT_CODE)
        columns, rows = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
        points, visible = locate_points(scene, label_map)
        sample["object_mask"] = torch.from_numpy(mask)
        sample["label_map"] = torch.from_numpy(label_map)
        sample["part_points"] = torch.from_numpy(points)
        sample["part_visible"] = torch.from_numpy(visible)
        sample["bounding_box"] = torch.tensor([columns[0], rows[0], columns[-1], rows[-1]], dtype=torch.float32)
        sample["concept_certainty"] = torch.from_numpy(certainty)

    def scene(self, i: int) -> Scene:
        """What is in image ``i``.

        Raises:
            IndexError: if there is no such image.
        """
        if not 0 <= i < self._length:
            raise IndexError(f"Expected argument `i` to be in [0, {self._length}), but got {i}.")
        return sample_scene(self.seed, self.split, i, self._rows, self.knobs)

    @cached_property
    def class_concepts(self) -> Tensor:
        """``(K, L)`` float in 0..1: how often the attribute is present over the images of a class."""
        present = np.zeros((len(self._rows), len(self.attributes.names)))
        for index in range(len(self)):
            kept = np.array(kept_parts(scene_uniforms(self.seed, self.split, index), self.knobs.part_removal))
            label = index % len(self._rows)
            present[label] += (self._class_attributes[label] & kept[:, None]).any(axis=0)
        return torch.from_numpy(present / np.bincount(self.labels)[:, None]).float()

    @property
    def labels(self) -> NDArray[np.int64]:
        """``(n,)`` class of every image."""
        return np.arange(len(self)) % len(self._rows)

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
        return len(self._rows)

    @property
    def parts(self) -> Mapping[str, Sequence[str]]:
        """Part name -> names of all its variants, whether or not a class uses them."""
        return PARTS

    @cached_property
    def classes(self) -> list[dict[str, int]]:
        """For each class: part name -> index of its variant."""
        return [dict(zip(PART_NAMES, row, strict=True)) for row in self._rows]

    def image(self, i: int) -> NDArray[np.uint8]:
        """``(H, W, 3)`` uint8, RGB."""
        return self._draw(self.scene(i))

    def label_map(self, i: int) -> NDArray[np.uint8]:
        """``(H, W)`` uint8 label codes; the occluder's code is 32 + ``n_background(i)``."""
        return draw_label_map(primitives(self.scene(i)), self.image_size)

    def label(self, i: int) -> int:
        """Class index."""
        return self.scene(i).label

    @cached_property
    def sample_ids(self) -> list[str]:
        """Ids of all samples."""
        return [self.sample_id(i) for i in range(len(self))]

    def sample_id(self, i: int) -> str:
        """Such as "train/00012"."""
        return f"{self.split}/{i:05d}"

    def present(self, i: int) -> frozenset[str]:
        """Names of the parts the image was drawn with."""
        return frozenset(part for part, kept in zip(PART_NAMES, self.scene(i).kept, strict=True) if kept)

    def n_background(self, i: int) -> int:
        """Number of background objects; the occluder is none of them, as removing it shows more of the bird."""
        return len(self.scene(i).objects)

    def target_set(self, i: int) -> frozenset[int]:
        """T(x): the classes that agree with the image on every part present (all classes if none is)."""
        scene = self.scene(i)
        return frozenset(np.flatnonzero(target_set(self.class_table, scene.label, scene.kept)).tolist())

    def intervene(
        self,
        i: int,
        drop: Collection[str] = (),
        drop_background: Collection[int] = (),
        background: RGB | None = None,
        swap: Mapping[str, int] | None = None,
        pose: Pose | None = None,
    ) -> NDArray[np.uint8]:
        """The image with some things removed or replaced, in any combination.

        Args:
            i: index of the image.
            drop: names of present parts to remove; what is behind them shows.
            drop_background: indices below ``n_background(i)`` of objects to remove.
            background: RGB colour 0..255 that replaces the background.
            swap: present part -> index of the variant to draw instead.
            pose: ``(matrix, shift)`` from canonical to scene coordinates that replaces the bird's.

        Returns:
            ``(H, W, 3)`` uint8; without arguments equal to ``image(i)``.

        Raises:
            ValueError: if a part or an object is not there, or a variant does not exist.
        """
        return self._draw(changed_scene(self.scene(i), drop, drop_background, background, swap, pose))

    def _draw(self, scene: Scene) -> NDArray[np.uint8]:
        return draw_image(scene, primitives(scene), self.image_size)


@cache
def class_tables(
    num_birds: int, variants: tuple[tuple[int, ...], ...], seed: int
) -> tuple[NDArray[np.int64], Attributes, ClassTables]:
    """``(K, 5)`` int64 variants of the birds, the L attributes that some class has, and the tables of both.

    The tables lack ``class_concepts``, which are counted over training images.
    """
    table, attributes = make_class_table(num_birds, variants, seed), all_attributes()
    has_attribute = np.stack([attributes.of(row).any(axis=0) for row in table.tolist()])
    used = np.any(has_attribute, axis=0)
    chosen = attributes.select(used)
    tables = ClassTables(
        part_names=list(POINT_NAMES),
        part_group_names=list(POINT_GROUPS),
        part_to_group=torch.tensor([POINT_GROUPS.index(name.split()[-1]) for name in POINT_NAMES]),
        label_map_codes=dict(LABEL_MAP_CODES),
        concept_names=list(chosen.names),
        concept_to_part=torch.from_numpy(chosen.group),
        class_concepts_binary=torch.from_numpy(has_attribute[:, used]),
        class_attributes=torch.from_numpy(has_attribute).float(),
        attribute_names=list(attributes.names),
    )
    return table, chosen, tables
