"""SketchBirds in the layout of NICO (He et al. 2021): ``<class>/<context>/<image>.jpg``."""

from __future__ import annotations

import colorsys
from dataclasses import dataclass
from pathlib import Path

from protometry.datamodules.bird_parts import RGB
from protometry.datamodules.export.images import all_images, padded_names, save_jpeg
from protometry.datamodules.progress import track
from protometry.datamodules.sketch_birds import SketchBirds
from protometry.datamodules.sketch_birds.scene import Scene


@dataclass(frozen=True)
class Surroundings:
    """A kind of background.

    Args:
        name: name of the context folder.
        hues: first and last hue in degrees.
        saturation: 0..1.
        value: darkest value, 0..1; scenes add up to .2.
    """

    name: str
    hues: tuple[float, float]
    saturation: float
    value: float


# each is meant for one group of protometry.datamodules.nico.hsv_rule: foliage, pale, sky_water, rest
SURROUNDINGS = (
    Surroundings("on grass", (85.0, 150.0), 0.5, 0.5),
    Surroundings("in snow", (190.0, 250.0), 0.12, 0.8),
    Surroundings("at water", (190.0, 250.0), 0.5, 0.5),
    Surroundings("autumn", (10.0, 50.0), 0.5, 0.5),
)


def export_nico(birds: SketchBirds, out: Path) -> None:
    """Write one folder per class and context, with backgrounds the HSV rule of NICO can separate.

    ``contexts`` and ``context_correlation`` decide which context an image has; context c gets the colours of
    ``SURROUNDINGS[c mod 4]``, so that snow is the test set of ``scheme: hsv``. Nothing but the background changes.

    Args:
        birds: what is written.
        out: an empty folder, ``root`` for :class:`protometry.datamodules.Nico`.

    Raises:
        ValueError: if there are fewer than two contexts.
    """
    contexts = birds.dataset("train").knobs.contexts
    if contexts < 2:
        raise ValueError(
            f"Expected argument `contexts` to be at least 2 for the layout nico, but got {contexts}. Pass 4, say."
        )
    names = padded_names(birds)
    for source in track(all_images(birds), "writing images"):
        scene = source.dataset.scene(source.index)
        image = source.dataset.intervene(source.index, background=background_color(scene, contexts))
        folder = out / names[source.label] / context_name(scene.context)
        save_jpeg(image, folder / f"{source.stem}.jpg")


def context_name(context: int) -> str:
    """The folder of a context; from the fifth on with a number.

    Example:
        >>> context_name(1), context_name(5)
        ('in snow', 'in snow 2')
    """
    rounds, kind = divmod(context, len(SURROUNDINGS))
    return SURROUNDINGS[kind].name + (f" {rounds + 1}" if rounds else "")


def background_color(scene: Scene, contexts: int) -> RGB:
    """The colour of a scene's context; hue and value vary as much as in the scene itself.

    Contexts of one kind divide its hues among themselves.

    Returns:
        RGB, 0..255.

    Example:
        >>> scene = SketchBirds("tiny", contexts=2).dataset("test").scene(0)
        >>> context_name(scene.context), background_color(scene, 2)
        ('on grass', (105, 163, 82))
    """
    hue, _, value = colorsys.rgb_to_hsv(*(channel / 255 for channel in scene.background))
    jitter = (hue * contexts - scene.context + contexts / 2) % contexts - contexts / 2  # within -.25 and .25
    position, number = divmod(scene.context, len(SURROUNDINGS))
    kind = SURROUNDINGS[number]
    bands = len(range(number, contexts, len(SURROUNDINGS)))
    first, last = kind.hues
    degrees = first + (last - first) * (position + 0.5 + jitter) / bands
    color = colorsys.hsv_to_rgb(degrees / 360, kind.saturation, kind.value + value - 0.5)
    red, green, blue = (min(255, round(255 * channel)) for channel in color)
    return red, green, blue
