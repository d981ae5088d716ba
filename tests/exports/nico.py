"""SketchBirds in the layout of NICO (He et al. 2021): ``<class>/<context>/<image>.jpg``."""

import colorsys
from typing import NamedTuple

from tests.exports.images import all_images, padded_names, save_jpeg


class Surroundings(NamedTuple):
    """A context: its folder, first and last hue in degrees, saturation, and darkest value (scenes add up to .2)."""

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


def export_nico(birds, out):
    """Write one folder per class and context, with backgrounds the HSV rule of NICO can separate.

    ``contexts`` and ``context_correlation`` decide which context an image has; context c gets the colours of
    ``SURROUNDINGS[c mod 4]``, so that snow is the test set of ``scheme: hsv``. Nothing but the background changes.
    """
    contexts = birds.dataset("train").knobs.contexts
    if contexts < 2:
        raise ValueError(f"Expected argument `contexts` to be at least 2 for the layout nico, but got {contexts}.")
    names = padded_names(birds)
    for source in all_images(birds):
        scene = source.dataset.scene(source.index)
        image = source.dataset.intervene(source.index, background=background_color(scene, contexts))
        save_jpeg(image, out / names[source.label] / context_name(scene.context) / f"{source.stem}.jpg")


def context_name(context):
    """The folder of a context; from the fifth on with a number, such as "in snow 2"."""
    rounds, kind = divmod(context, len(SURROUNDINGS))
    return SURROUNDINGS[kind].name + (f" {rounds + 1}" if rounds else "")


def background_color(scene, contexts):
    """The colour of a scene's context; hue and value vary as much as in the scene itself.

    Contexts of one kind divide its hues among themselves.
    """
    hue, _, value = colorsys.rgb_to_hsv(*(channel / 255 for channel in scene.background))
    jitter = (hue * contexts - scene.context + contexts / 2) % contexts - contexts / 2  # within -.25 and .25
    position, number = divmod(scene.context, len(SURROUNDINGS))
    kind = SURROUNDINGS[number]
    bands = len(range(number, contexts, len(SURROUNDINGS)))
    first, last = kind.hues
    degrees = first + (last - first) * (position + 0.5 + jitter) / bands
    color = colorsys.hsv_to_rgb(degrees / 360, kind.saturation, kind.value + value - 0.5)
    return tuple(min(255, round(255 * channel)) for channel in color)
