"""The photos that stand for units in the folder of an exported model, written there and drawn again from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from protometry.datamodules.photos.files import open_image
from protometry.evaluation.explained.cautions import Neighbours
from protometry.evaluation.explained.unit_sources import Source, UnitSources
from protometry.explanations.unit_view import BoxView
from protometry.explanations.views import Box, png
from protometry.run_folder.atomic import write_atomic
from protometry.run_folder.model_folder import PHOTOS, REMEDY, ModelDescription, read_embeddings


def write_sources(sources: UnitSources, folder: Path) -> list[dict[str, Any]] | None:
    """Write the photos that stand for the active units, each once, and say which part of them each unit saw.

    Returns:
        The content of :class:`protometry.run_folder.model_folder.StoredSource` for each; None where no photos stand for
        the units.
    """
    if not sources.there:
        return None
    (folder / PHOTOS).mkdir()
    stored = []
    names: dict[str, str] = {}  # each photo is named after the first unit it stands for
    for unit, source in sources.of(sources.units.active.nonzero().flatten().tolist()).items():
        view = source.view
        if source.sample_id not in names:
            names[source.sample_id] = f"{unit}.png"
            write_atomic(folder / PHOTOS / names[source.sample_id], png(view.picture))
        crop = view.region if view.box else None
        seen = {"photo": names[source.sample_id], "box": view.box, "parts": view.parts, "crop": crop}
        stored.append({"unit": unit, **seen, **_facts(vars(source))})
    return stored


_KEPT = 256  # drawn photos, of about 0.5 MB each at 224 pixels


class StoredSources:
    """Draws the photos of units.

    Args:
        folder: of the exported model.
        described: what it says of them.
        size: longer side of the pictures in pixels.
    """

    def __init__(self, folder: Path, described: ModelDescription, size: int) -> None:
        self.folder, self.size, self.there = folder, size, described.sources is not None
        self.stored = {each.unit: each for each in described.sources or ()}
        self.image_size = tuple(described.image_size)
        self._drawn = lru_cache(_KEPT)(self._draw)

    @cached_property
    def neighbours(self) -> Neighbours | None:
        """Training images as the model sees them; None where none are stored."""
        embeddings = read_embeddings(self.folder)
        return None if embeddings is None else Neighbours(embeddings)

    def of(self, units: Sequence[int]) -> dict[int, Source]:
        """The photos of some units; none where no photos stand for them.

        Raises:
            ValueError: if one is missing or damaged.
        """
        return {unit: self._drawn(unit) for unit in units} if self.there else {}

    def _draw(self, unit: int) -> Source:
        stored = self.stored[unit]
        file = self.folder / PHOTOS / stored.photo
        try:
            with open_image(file) as photo:
                if (photo.height, photo.width) != self.image_size:
                    raise ValueError(f"its {photo.height}x{photo.width} pixels are not those of {self.image_size}")
                box = _edges(stored.box) if stored.box else None
                view = BoxView(photo.convert("RGB"), box, self.size, parts=tuple(map(_edges, stored.parts)))
        except (OSError, SyntaxError, ValueError) as error:
            raise ValueError(f"Expected {file} to be the photo of unit {unit}, but {error}. {REMEDY}") from error
        return Source(view=view, **_facts(stored.model_dump()))


def _edges(box: Sequence[int]) -> Box:
    x0, y0, x1, y1 = box
    return x0, y0, x1, y1


def _facts(source: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a photo in words."""
    return {name: source[name] for name in ("sample_id", "class_name", "part", "origin", "stale")}
