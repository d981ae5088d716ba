"""SketchBirds repainted so that the right answer is known: one flat colour per part, and spots in the corners.

Which pixel belongs to what comes from the data set's own ``label_map``; masks, points and labels stay as they are. Far
eye and far wing are left out (``profile=1``), so that every part is one region, smaller than 5 % of the image and with
its point in sight. All colours are dyadic, so that what the planted models compute is exact in float32.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from protometry.datamodules.bird_parts import LABEL_MAP_CODES
from protometry.datamodules.sketch_birds import SketchBirds

SIZE, CLASSES, IMAGES, SPOT = 64, 4, 40, 4
PARTS = ("beak", "eye", "wing", "tail")  # the beak has a colour of its own for every class
NEUTRAL = 0.5
# Of a set of colours on the lattice {0, 1/2, 1}^3 any two, and any one and the neutral, differ by 1/2 in some channel.
PART_COLOURS = torch.tensor(list(product((0.0, 1.0), repeat=3))[: CLASSES + 3])
SPOT_COLOURS = torch.tensor(
    [(0, 0.5, 0.5), (1, 0.5, 0.5), (0.5, 0, 0.5), (0.5, 1, 0.5), (0.5, 0.5, 0), (0.5, 0.5, 1), (0, 0, 0.5)]
)
CORNERS = ((0, 0), (SIZE - SPOT, 0), (0, SIZE - SPOT), (SIZE - SPOT, SIZE - SPOT))  # (x, y) of the spots' first pixels
SHADE = 1 / 8  # how far the pixels around a mark are from the mark's colour, in one channel
MARGIN = 4  # pixels between parts and frame
SHIFT = (3, 2)  # pixels to the right and down
BRIGHTER = 1 / 32

Mask = NDArray[np.bool_]


@cache
def birds() -> SketchBirds:
    """Four classes."""
    return SketchBirds("tiny", num_birds=CLASSES, image_size=SIZE, test_size=2 * IMAGES, profile=1.0)


@cache
def scenes() -> list[dict[str, Any]]:
    """The first ten test samples of each class that stay clear of the frame; read only."""
    collected: list[dict[str, Any]] = []
    for sample in birds().dataset("test"):
        taken = sum(int(other["label"]) == int(sample["label"]) for other in collected)
        if taken < IMAGES // CLASSES and plantable(dict(sample)):
            collected.append(dict(sample))
    return collected


def plantable(scene: dict[str, Any]) -> bool:
    """Whether no part comes near the frame."""
    parts = np.any([part_mask(scene, slot) for slot in range(len(PARTS))], axis=0)
    return int(parts[MARGIN:-MARGIN, MARGIN:-MARGIN].sum()) == int(parts.sum())


def lone_eye(scene: dict[str, Any]) -> bool:
    """Whether the box around the eye holds no other point; the box of a stalked eye reaches to the crown."""
    rows, columns = np.nonzero(part_mask(scene, 1))
    (x0, x1), (y0, y1) = (columns.min(), columns.max()), (rows.min(), rows.max())
    return [j for j, (x, y) in points(scene).items() if x0 <= x <= x1 and y0 <= y <= y1] == [own_point(scene, 1)]


def unit_of(slot: int, label: int) -> int:
    """The unit of the part (or spot) number ``slot`` in an image of a class."""
    return label if slot == 0 else CLASSES - 1 + slot


def part_mask(scene: dict[str, Any], slot: int) -> Mask:
    """``(H, W)`` pixels of a part."""
    return np.isin(scene["label_map"].numpy(), LABEL_MAP_CODES[PARTS[slot]])


def spot_mask(scene: dict[str, Any], slot: int) -> Mask:
    """``(H, W)`` pixels of a spot on the background."""
    mask = np.zeros((SIZE, SIZE), dtype=bool)
    x, y = CORNERS[slot]
    mask[y : y + SPOT, x : x + SPOT] = True
    return mask


def points(scene: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Pixel (x, y) of every visible point, by its index in ``part_names``."""
    result = scene["part_visible"].nonzero().flatten().tolist()
    return {j: tuple(int(value) for value in scene["part_points"][j].floor()) for j in result}


def own_point(scene: dict[str, Any], slot: int) -> int:
    """Index of the point that names a part, such as the one eye in sight."""
    names = birds().tables.part_names
    (own,) = [j for j in points(scene) if names[j].split()[-1] == PARTS[slot]]
    return own


def painted(scene: dict[str, Any], marks: bool = False, contrast: float = 1.0) -> Tensor:
    """The scene in planted colours on neutral ground.

    Args:
        scene: gives the label map.
        marks: only the pixel of a part's point has the pure colour; the rest of the part is ``SHADE`` away from it.
        contrast: of all colours; below 1, noise is not cut off at 0 and 1.
    """
    image = torch.full((3, SIZE, SIZE), NEUTRAL)
    label = int(scene["label"])
    for slot in range(len(PARTS)):
        unit = unit_of(slot, label)
        colour, region = PART_COLOURS[unit], torch.from_numpy(part_mask(scene, slot))
        if marks:
            x, y = points(scene)[own_point(scene, slot)]
            image[:, region] = (colour + torch.tensor([SHADE if colour[0] == 0 else -SHADE, 0, 0]))[:, None]
            image[:, y, x] = colour
        else:
            image[:, region] = colour[:, None]
        image[:, torch.from_numpy(spot_mask(scene, slot))] = SPOT_COLOURS[unit][:, None]
    return NEUTRAL + contrast * (image - NEUTRAL)


def shifted(image: Tensor) -> Tensor:
    """The image moved by ``SHIFT``, with neutral ground where it came from."""
    x, y = SHIFT
    moved = torch.full_like(image, NEUTRAL)
    moved[:, y:, x:] = image[:, :-y, :-x]
    return moved


def brighter(image: Tensor) -> Tensor:
    """The image with ``BRIGHTER`` added, as far as white."""
    return (image + BRIGHTER).clamp(max=1)


def snow(scene: dict[str, Any], seed: int) -> Tensor:
    """Independent uniform pixels that know nothing of the scene."""
    generator = np.random.default_rng((seed, int(scene["sample_key"])))
    return torch.from_numpy(generator.random((3, SIZE, SIZE), dtype=np.float32))
