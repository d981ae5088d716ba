"""The sizes SketchBirds comes in."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from protometry.datamodules.arguments import check_choice
from protometry.datamodules.bird_parts import PARTS

MOST_IMAGES = 10_000_000  # of a split; their ids alone take a gigabyte
_ALL_VARIANTS = tuple(tuple(range(len(names))) for names in PARTS.values())


@dataclass(frozen=True)
class Preset:
    """The numbers of a preset; variants are indices for beak, eye, foot, tail, wing."""

    num_birds: int
    variants: tuple[tuple[int, ...], ...]
    image_size: int | tuple[int, int]
    train_size: int
    val_size: int
    test_size: int

    @property
    def frame(self) -> tuple[int, int]:
        """``(H, W)`` pixels."""
        return (self.image_size, self.image_size) if isinstance(self.image_size, int) else self.image_size

    @property
    def sizes(self) -> dict[str, int]:
        """Number of images by split."""
        return {"train": self.train_size, "val": self.val_size, "test": self.test_size}


PRESETS = {
    "tiny": Preset(8, ((0, 1), (0, 1), (0, 2), (0, 4), (0, 3)), 64, 256, 64, 64),
    "small": Preset(20, ((0, 1, 2), (0, 1, 2), (0, 1, 2), (0, 4, 8), (0, 3, 4)), 128, 4000, 400, 400),
    "default": Preset(50, _ALL_VARIANTS, 128, 10_000, 500, 500),
    "full": Preset(50, _ALL_VARIANTS, 256, 50_000, 500, 500),
}


def preset_numbers(preset: str, **overrides: int | tuple[int, int] | None) -> Preset:
    """A preset with its numbers overridden.

    Raises:
        ValueError: if there is no such preset or a number is too small or too large.

    Example:
        >>> preset_numbers("tiny", image_size=96, num_birds=None).image_size
        96
    """
    check_choice("preset", preset, PRESETS)
    numbers = replace(PRESETS[preset], **{k: v for k, v in overrides.items() if v is not None})  # type: ignore[arg-type]
    least = {"num_birds": 3, "train_size": numbers.num_birds, "val_size": 1, "test_size": 1}
    for name, lowest in least.items():
        if getattr(numbers, name) < lowest:
            raise ValueError(f"Expected argument `{name}` to be at least {lowest}, but got {getattr(numbers, name)}.")
    if (most := max(numbers.sizes.values())) > MOST_IMAGES:
        raise ValueError(f"Expected every split to have at most {MOST_IMAGES} images, but got {most}.")
    if np.min(numbers.image_size) < 16:
        raise ValueError(f"Expected argument `image_size` to be at least 16, but got {numbers.image_size}.")
    return numbers
