"""Similarity maps enlarged to the image, as prototype papers show them.

An enlarged map shows where a cell is, not what the cell saw: the receptive field of a deep cell covers most of the
image.
"""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from protometry.explanations.explainer import Explainer, Kind, Question
from protometry.lightning_modules.contract import InterpretableModel
from protometry.metrics.primitives.checks import check_choice
from protometry.metrics.primitives.upsample import Mode, upsample_maps

Placement = Literal["resize", "geometry"]


class Upsample(Explainer):
    """The similarity map of a unit, enlarged to the image.

    Source: Chen et al. (2019), "This looks like that: deep learning for interpretable image recognition", section 2.2
    (bicubic). Equal to the cubic and linear resize of OpenCV. See :func:`upsample_maps` for what it cannot show.

    Args:
        mode: the interpolation.
        placement: ``"resize"`` treats cells as tiles of the image, as papers do, where they fill it exactly, and puts
            every cell at the centre of what it reads elsewhere; ``"geometry"`` always does the latter.

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
        geometry = model.geometry
        return upsample_maps(
            maps, size, self.mode, geometry.lines if self.placement == "geometry" else geometry.lattice
        )
