"""Similarity maps enlarged to the image, as prototype papers show them, and the step from cells to pixels.

An enlarged map shows where a cell is, not what the cell saw: the receptive field of a deep cell covers most of the
image.
"""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from protometry.explanations.explainer import Explainer, Kind, Question
from protometry.lightning_modules.contract import InterpretableModel
from protometry.lightning_modules.geometry import Geometry
from protometry.metrics.primitives.checks import check_choice

Mode = Literal["bicubic", "bilinear", "nearest"]
Placement = Literal["resize", "geometry"]


def upsample_maps(
    maps: Tensor, size: tuple[int, int], mode: Mode = "bicubic", geometry: Geometry | None = None
) -> Tensor:
    """Enlarge maps of cells ``(B, h, w)`` to the pixels of an image ``(B, H, W)``.

    Half-pixel centres, no antialiasing, borders repeated. Pixel x reads the grid at ``(x + 1/2) w / W - 1/2``, or, with
    a geometry, at ``(x + 1/2 - start) / jump``. Bicubic is the kernel with a = -0.75: values overshoot by up to about
    0.2 of a map's range, and the largest pixel may lie outside the largest cell. With ``"nearest"``, a pixel halfway
    between two cells takes the later one.

    Example:
        >>> upsample_maps(torch.tensor([[[0.0, 1.0]]]), (1, 4), "bilinear")
        tensor([[[0.0000, 0.2500, 0.7500, 1.0000]]])
    """
    planes = maps[:, None]
    if geometry is None:
        # "nearest" of torch reads at x w / W, without half-pixel centres; "nearest-exact" has them
        if mode == "nearest":
            return F.interpolate(planes, size, mode="nearest-exact")[:, 0]
        return F.interpolate(planes, size, mode=mode, align_corners=False)[:, 0]
    rows, columns = (
        _grid_coordinates(cells, pixels, mode, geometry, maps.device).to(maps)
        for cells, pixels in zip(maps.shape[1:], size, strict=True)
    )
    grid = torch.stack([columns.expand(*size), rows[:, None].expand(*size)], dim=-1).expand(len(maps), -1, -1, -1)
    return F.grid_sample(planes, grid, mode=mode, padding_mode="border", align_corners=False)[:, 0]


def _grid_coordinates(cells: int, pixels: int, mode: Mode, geometry: Geometry, device: torch.device) -> Tensor:
    """Where the pixels of one axis read the grid, in the coordinates of ``grid_sample``: -1 to 1 over all cells."""
    position = (torch.arange(pixels, dtype=torch.float64, device=device) + 0.5 - geometry.start) / geometry.jump
    if mode == "nearest":
        position = (position + 0.5).floor()  # here, because `grid_sample` would round ties to even cells
    return (2 * position + 1) / cells - 1


class Upsample(Explainer):
    """The similarity map of a unit, enlarged to the image.

    Source: Chen et al. (2019), "This looks like that: deep learning for interpretable image recognition", section 2.2
    (bicubic). Equal to the cubic and linear resize of OpenCV. See :func:`upsample_maps` for what it cannot show.

    Args:
        mode: the interpolation.
        placement: ``"resize"`` treats cells as tiles of the image, as papers do; ``"geometry"`` puts every cell at the
            centre of its receptive field, for backbones without padding, whose cells do not cover the image.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> from protometry.explanations.explainer import Targets
        >>> from protometry.lightning_modules import Classifier
        >>> model, images = Classifier(num_classes=4, image_size=(32, 48)).eval(), torch.rand(1, 3, 32, 48)
        >>> maps = Upsample("nearest").attribute(model, images, Targets("unit", torch.tensor([[5]])))
        >>> torch.equal(maps[0, 0, ::8, ::8], model(images).maps[0, 5])
        True
    """

    key: ClassVar[str] = "upsample"
    explains: ClassVar[frozenset[Kind]] = frozenset({"unit"})

    def __init__(self, mode: Mode = "bicubic", placement: Placement = "resize") -> None:
        check_choice("mode", mode, get_args(Mode))
        check_choice("placement", placement, get_args(Placement))
        self.mode: Mode = mode
        self.placement = placement

    @torch.no_grad()
    def _maps(self, model: InterpretableModel, question: Question) -> Tensor:
        chosen = question.output.maps[torch.arange(len(question.ids), device=question.ids.device), question.ids]
        return self.enlarge(model, chosen, question.images)

    def enlarge(self, model: InterpretableModel, maps: Tensor, images: Tensor) -> Tensor:
        """Any maps ``(B, h, w)`` of the model's cells, enlarged to the images like similarity maps: ``(B, H, W)``."""
        size = (images.shape[2], images.shape[3])
        return upsample_maps(maps, size, self.mode, model.geometry if self.placement == "geometry" else None)
