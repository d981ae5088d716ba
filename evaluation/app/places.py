"""Where else a region of an image is found, and where units lie among each other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from matplotlib import colormaps
from PIL import Image
from torch import Tensor
from torch.nn import functional as F
from torchvision.transforms.functional import pil_to_tensor

from protometry.evaluation.app.explorer import Explorer
from protometry.evaluation.explained.scan import labels_of, loaders
from protometry.evaluation.explained.unit_sources import TRAINING_IMAGES
from protometry.explanations.charts import chart, styled, to_picture
from protometry.explanations.unit_view import BoxView
from protometry.explanations.views import Box, to_image
from protometry.lightning_modules.contract import InterpretableModel

MEMORY, AT_ONCE = 2**29, 64  # bytes of the latents that are kept; images at once
NEAREST, SIZE = 6, 256  # images shown, and longer side of their pictures in pixels
WIDTH, HEIGHT, COLOURS = 640, 480, 20  # of the map


class Places:
    """The training images of a model, or in an exported folder the photos that stand for its units.

    Attributes:
        there: whether there are any.
    """

    def __init__(self, explorer: Explorer) -> None:
        self.explorer, self.model = explorer, explorer.model
        self.there = explorer.sources.there if explorer.data is None else explorer.data.loading.classes is None

    @torch.no_grad()
    def nearest(self, sample: Any, box: Box, most: int = NEAREST) -> list[tuple[float, BoxView, str, str]]:
        """Where each image looks most like the region of a box, for the images where it does most.

        A region is the mean latent of the cells whose centres lie in it. In every other image, it is compared with all
        regions of as many rows and columns, by the cosine similarity.

        Args:
            sample: an image of the data, or a photo that was read.
            box: inclusive pixels of the image.
            most: images.

        Returns:
            Similarity, where, id and class of images, the most similar first.
        """
        (top, bottom), (left, right) = cells_in(box, self.model)
        rows, columns = bottom - top + 1, right - left + 1
        with self.explorer.alone:
            wanted = self._latents(sample["image"][None])[0, :, top : bottom + 1, left : right + 1].mean(dim=(1, 2))
            parts = [F.avg_pool2d(part, (rows, columns), 1) for part in self._searched[1]]
        maps = torch.cat([F.cosine_similarity(part, wanted[:, None, None], dim=1) for part in parts])
        values, cells = maps.flatten(1).max(dim=1)
        found = []
        for index in values.argsort(descending=True, stable=True)[:most].tolist():
            row, column = divmod(int(cells[index]), maps.shape[2])
            x0, y0, _, _ = self.model.geometry.cell_box(row, column)
            _, _, x1, y1 = self.model.geometry.cell_box(row + rows - 1, column + columns - 1)
            picture, name, label = self._searched[0][index]
            found.append((float(values[index]), BoxView(picture, (x0, y0, x1, y1), SIZE), name, label))
        return found

    def _latents(self, images: Tensor) -> Tensor:
        latents: Tensor = self.model(images.to(self.explorer.explained.units.active.device)).latent.float().cpu()
        return latents

    @cached_property
    def _searched(self) -> tuple[list[tuple[Image.Image, str, str]], list[Tensor]]:
        """Picture, id and class of images, and their latents in parts: at most 1,000, drawn by class, and 512 MiB."""
        explorer, names = self.explorer, self.explorer.explained.class_names
        if explorer.data is None:
            first = {each.photo: unit for unit, each in reversed(explorer.sources.stored.items())}.values()
            sources = explorer.sources.of([*first]).values()
            images = [(each.view.picture, each.sample_id, each.class_name) for each in sources]
        else:
            size = self._latents(torch.zeros(1, 3, *self.model.geometry.image)).nbytes
            with loaders(explorer.data, "projection", max(1, min(TRAINING_IMAGES, MEMORY // size))) as loader:
                images = [
                    (to_image(each["image"]), each["sample_id"], ", ".join(names[k] for k in labels_of(each)[0]))
                    for each in map(loader.dataset.__getitem__, range(len(loader.dataset)))
                ]
        batches = [images[first : first + AT_ONCE] for first in range(0, len(images), AT_ONCE)]
        return images, [self._latents(torch.stack([pil_to_tensor(i[0]) for i in batch]) / 255) for batch in batches]


def cells_in(box: Box, model: InterpretableModel) -> list[tuple[int, int]]:
    """First and last row, and first and last column, of the cells whose centres lie in a box, at least the nearest."""
    geometry, spans = model.geometry, []
    for axis, cells in enumerate(geometry.grid):
        boxes = [geometry.cell_box(*((index, 0) if axis == 0 else (0, index))) for index in range(cells)]
        centres = [(each[1 - axis] + each[3 - axis]) / 2 for each in boxes]
        first, last = box[1 - axis], box[3 - axis]
        nearest = min(range(cells), key=lambda index: abs(centres[index] - (first + last) / 2))
        inside = [index for index, centre in enumerate(centres) if first <= centre <= last] or [nearest]
        spans.append((inside[0], inside[-1]))
    return spans


@dataclass(frozen=True)
class UnitMap:
    """All units of a model in two dimensions, coloured by class.

    Args:
        units: their numbers.
        points: ``(n, 2)`` pixels x, y of the picture.
        of: what the principal components are of.
    """

    picture: Image.Image
    units: list[int]
    points: Tensor
    of: str

    def at(self, x: float, y: float) -> int:
        """The unit nearest to a pixel."""
        return self.units[int((self.points - torch.tensor([x, y])).square().sum(dim=1).argmin())]


@torch.no_grad()
@styled
def unit_map(explorer: Explorer, shown: int | None = None) -> UnitMap | None:
    """The first two principal components of the units, in the colour of the class that each counts most for.

    Of their vectors, else of their weights for all classes, else of their scores on training images.

    Args:
        explorer: of the model.
        shown: a unit to mark.

    Returns:
        None without any of these.
    """
    table, units = explorer.table, explorer.active
    if table.vectors is not None:
        of, features = "vectors", table.vectors[units]
    elif table.weight is not None:
        of, features = "weights for the classes", table.weight.T[units]
    elif explorer.data is not None and explorer.sources.there:
        of, features = "scores on training images", explorer.sources.training.scores.T[units]
    else:
        return None
    centred = features.detach().double().cpu()
    left, values, _ = torch.linalg.svd(centred - centred.mean(dim=0), full_matrices=False)
    points = F.pad(left * values, (0, 2))[:, :2]  # of a single unit, or channel
    strength = table.owner.double() if table.weight is None else table.weight.T.double()
    figure, (axes,) = chart(WIDTH, HEIGHT)
    colours = colormaps["tab20"](strength[units].argmax(dim=1).cpu().numpy() % COLOURS)
    axes.scatter(points[:, 0], points[:, 1], s=26, color=colours)
    if shown is not None:
        at = units.index(shown)
        axes.scatter(points[at, :1], points[at, 1:], s=160, facecolors="none", edgecolors="black")
    axes.set(xlabel="first principal component", ylabel="second")
    picture = to_picture(figure)
    pixels = torch.from_numpy(axes.transData.transform(points.numpy()))
    return UnitMap(picture, units, torch.stack([pixels[:, 0], picture.height - pixels[:, 1]], dim=1), of)
