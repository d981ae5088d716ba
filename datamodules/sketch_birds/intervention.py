"""Interventions on a scene: parts, objects, background and pose changed, everything else unchanged."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from protometry.datamodules.bird_parts import FIRST_OBJECT_CODE, PART_NAMES, PARTS, RGB
from protometry.datamodules.sketch_birds.scene import Scene

Pose = tuple[Sequence[Sequence[float]], Sequence[float]]


def changed_scene(
    scene: Scene,
    drop: Collection[str] = (),
    drop_background: Collection[int] = (),
    background: RGB | None = None,
    swap: Mapping[str, int] | None = None,
    pose: Pose | None = None,
) -> Scene:
    """The scene as :meth:`.SketchBirdsDataset.intervene` changes it; objects that stay keep place and code.

    Raises:
        ValueError: if a part or an object is not there, a variant does not exist, or the colour is none.
    """
    swap = swap or {}
    present = [part for part, kept in zip(PART_NAMES, scene.kept, strict=True) if kept]
    for name, parts in (("drop", drop), ("swap", swap)):
        if unknown := [part for part in parts if part not in present]:
            raise ValueError(f"Expected argument `{name}` to name parts present, {present}, but got {unknown[0]!r}.")
    for part, variant in swap.items():
        if not 0 <= variant < len(PARTS[part]):
            raise ValueError(f"Expected argument `swap` to be below {len(PARTS[part])} for {part}, but got {variant}.")
    codes = {FIRST_OBJECT_CODE + j for j in drop_background}
    if missing := codes - {thing.code for thing in scene.objects}:
        raise ValueError(
            f"Expected argument `drop_background` to hold indices below {len(scene.objects)}, the number of "
            f"background objects, but got {min(missing) - FIRST_OBJECT_CODE}."
        )
    if background is not None and (len(background) != 3 or not all(0 <= value <= 255 for value in background)):
        raise ValueError(f"Expected argument `background` to be three values in 0..255, but got {background}.")
    (a, b), (c, d) = pose[0] if pose else scene.matrix
    x, y = pose[1] if pose else scene.shift
    return replace(
        scene,
        variants=tuple(swap.get(part, v) for part, v in zip(PART_NAMES, scene.variants, strict=True)),
        kept=tuple(kept and part not in drop for part, kept in zip(PART_NAMES, scene.kept, strict=True)),
        matrix=((float(a), float(b)), (float(c), float(d))),
        shift=(float(x), float(y)),
        background=scene.background if background is None else background,
        objects=tuple(thing for thing in scene.objects if thing.code not in codes),
    )
