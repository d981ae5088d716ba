"""The evidence for a class from the similarity maps of its units: the maps summed, or the boxes around their peaks.

Both are the interfaces of the FunnyBirds protocol to prototype models. The weight of a unit u for a class c is its
share of the logit divided by its score: the weight itself for a linear head, for a tree what the logit loses without
the node.
"""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from protometry.explanations.explainer import Explainer, Kind, Question
from protometry.explanations.upsample import Placement, Upsample
from protometry.lightning_modules.contract import DecidesByTree, InterpretableModel, ModelOutput
from protometry.metrics.primitives.boxes import bounding_boxes
from protometry.metrics.primitives.checks import check_choice
from protometry.metrics.primitives.regions import percentile_mask
from protometry.metrics.primitives.upsample import Mode, upsample_maps

BoxVariant = Literal["fixed", "reference", "corrected"]
_FOREIGN_CLASS = 3  # whose weights the released code read: the number of colour channels of a prototype's picture
_PIXELS_AT_ONCE = 2**24  # of enlarged maps: 64 MiB of float32


class SummedMaps(Explainer):
    """The similarity maps of the units of a class, times their weights, summed and enlarged ("SSM").

    Source: Opłatek et al. (2024), section 3.2: ``A = Σ_u w_cu · bicubic(maps_u)`` over the active units u that the
    class c owns, signs kept. Summed before enlarging, which is linear. Deviation: w_cu is 0 where the score of the unit
    is 0.

    Args:
        mode: the interpolation.
        placement: as in :class:`~protometry.explanations.upsample.Upsample`.

    Raises:
        ValueError: if an argument differs from the above.

    Example:
        >>> from protometry.explanations.explainer import Targets
        >>> from protometry.lightning_modules import ProtoPNet
        >>> model, images = ProtoPNet(num_classes=4, image_size=(32, 48)).eval(), torch.rand(1, 3, 32, 48)
        >>> SummedMaps().attribute(model, images, Targets("class", torch.tensor([[2, 0]]))).shape
        torch.Size([1, 2, 32, 48])
    """

    key: ClassVar[str] = "ssm"
    explains: ClassVar[frozenset[Kind]] = frozenset({"class"})

    def __init__(self, mode: Mode = "bicubic", placement: Placement = "resize") -> None:
        self.mode, self.placement = mode, placement
        self._upsample = Upsample(mode, placement)

    def supports(self, model: InterpretableModel) -> str | None:
        """None for units that add to a class by a weight times their score, or by a tree."""
        return _without_weights(model)

    @torch.no_grad()
    def _maps(self, model: InterpretableModel, question: Question) -> Tensor:
        weights = weights_of_classes(model, question.output, question.ids)
        summed = (weights[:, :, None, None] * question.output.maps).sum(dim=1)
        return self._upsample.enlarge(model, summed, question.images)


class BoxMaps(Explainer):
    """The boxes around the peaks of the units of a class, each filled with weight times score, summed ("BB").

    Source: Hesse et al. (2023), for ProtoPNet: ``A = Σ_u w_cu · s_u · B_u`` over the active units u that the class c
    owns; B_u is 1 in the tight box around the pixels strictly above the 0.95 quantile of the bicubic map, and 0
    elsewhere. A flat map has no box.

    Args:
        variant: ``"reference"`` has three errors of the code as released in 2023: a box is drawn around the pixels that
            are not below the quantile, for a flat map around the whole image; it loses its last row and column; and
            w_cu is that of class 3 for every class c, since the number of colour channels overwrote c
            (github.com/visinf/funnybirds/issues/5). ``"corrected"`` has the first two, as that code since March 2025.

    Raises:
        ValueError: if ``variant`` is unknown.

    Example:
        >>> from protometry.explanations.explainer import Targets
        >>> from protometry.lightning_modules import ProtoPNet
        >>> model, images = ProtoPNet(num_classes=4, image_size=(32, 48)).eval(), torch.rand(1, 3, 32, 48)
        >>> targets = Targets("class", torch.tensor([[2, 0]]))
        >>> BoxMaps().attribute(model, images, targets).shape, BoxMaps().region(model, model(images), targets.ids).shape
        (torch.Size([1, 2, 32, 48]), torch.Size([1, 2, 32, 48]))
    """

    key: ClassVar[str] = "bb"
    explains: ClassVar[frozenset[Kind]] = frozenset({"class"})

    def __init__(self, variant: BoxVariant = "fixed") -> None:
        check_choice("variant", variant, get_args(BoxVariant))
        self.variant = variant

    def supports(self, model: InterpretableModel) -> str | None:
        """As for :class:`SummedMaps`; ``"reference"`` needs the class whose weights it reads."""
        if self.variant == "reference" and model.units().owner.shape[1] <= _FOREIGN_CLASS:
            return f"the released code reads the weights of class {_FOREIGN_CLASS}, and the model has no such class"
        return _without_weights(model)

    @property
    def coverage(self) -> Literal["fixed", "reference"]:
        """How the region covers a part, see :func:`~protometry.metrics.functional.covered_parts`."""
        return "fixed" if self.variant == "fixed" else "reference"

    @torch.no_grad()
    def _maps(self, model: InterpretableModel, question: Question) -> Tensor:
        image, unit, boxes = self._boxes(model, question.output, question.ids, question.size)
        weighing = torch.full_like(question.ids, _FOREIGN_CLASS) if self.variant == "reference" else None
        weights = weights_of_classes(model, question.output, question.ids, weighing)
        shares = (weights * question.output.scores)[image, unit]
        return _stack(shares.float(), image, boxes, len(question.ids), question.size)

    @torch.no_grad()
    def region(
        self, model: InterpretableModel, output: ModelOutput, classes: Tensor, size: tuple[int, int] | None = None
    ) -> Tensor:
        """The union of the boxes of the units of classes ``(B, k)``, whatever their weights: ``(B, k, H, W)`` bool.

        Class -1 is an empty slot, whose union is empty; the size is the model's by default.
        """
        size = size or model.geometry.image
        unions = []
        for ids in classes.unbind(dim=1):
            image, _, boxes = self._boxes(model, output, ids, size)
            unions.append(_stack(torch.ones_like(image).float(), image, boxes, len(ids), size) > 0)
        return (
            torch.stack(unions, dim=1)
            if unions
            else torch.zeros(len(classes), 0, *size, dtype=torch.bool, device=classes.device)
        )

    def _boxes(
        self, model: InterpretableModel, output: ModelOutput, classes: Tensor, size: tuple[int, int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Image, unit and box of every unit that a class owns, ``(P,)``, ``(P,)`` and ``(P, 4)``, image by image."""
        image, unit = (owned_by(model, classes) & (classes >= 0)[:, None]).nonzero().unbind(dim=1)
        step = max(1, _PIXELS_AT_ONCE // (size[0] * size[1]))
        pairs = zip(torch.split(image, step), torch.split(unit, step), strict=True)
        lattice = model.geometry.lattice
        maps = (upsample_maps(output.maps[b, u], size, lattice=lattice) for b, u in pairs if len(b))
        chunks = [bounding_boxes(self._mask(enlarged)) for enlarged in maps]
        boxes = torch.cat(chunks) if chunks else image.new_empty(0, 4)
        if self.variant != "fixed":
            boxes = boxes - torch.tensor([0, 0, 1, 1], device=boxes.device)
        return image, unit, boxes

    def _mask(self, maps: Tensor) -> Tensor:
        """``(P, H, W)`` bool, the pixels that a box is drawn around."""
        return percentile_mask(maps) if self.variant == "fixed" else ~percentile_mask(-maps, 0.05)


def _without_weights(model: InterpretableModel) -> str | None:
    if model.units().weight is None and not isinstance(model, DecidesByTree):
        return "its units add to a class even where their score is 0, so that their maps have no weights"
    return None


def owned_by(model: InterpretableModel, classes: Tensor) -> Tensor:
    """``(B, U)`` bool, the active units that the class of each image owns; ``classes`` is ``(B,)`` int64."""
    table = model.units()
    return table.owner.T[classes.clamp(min=0)] & table.active


def weights_of_classes(
    model: InterpretableModel, output: ModelOutput, classes: Tensor, weighing: Tensor | None = None
) -> Tensor:
    """``(B, U)`` float, the share of every unit in the logit of one class per image, divided by its score.

    It is 0 for units that the class does not own or that are not active, and where the score is 0. ``weighing`` names
    other classes, to whose logits the units of ``classes`` add.
    """
    scores = output.scores
    used = owned_by(model, classes) & (scores != 0)
    shares: Tensor = model.contributions(output, classes if weighing is None else weighing)
    return torch.where(used, shares / scores.masked_fill(~used, 1), 0)


def _stack(values: Tensor, image: Tensor, boxes: Tensor, images: int, size: tuple[int, int]) -> Tensor:
    """``(B, H, W)``, the sum of boxes of an image, each filled with its value: ``(P,)``, ``(P,)`` and ``(P, 4)``."""
    counts = image.new_zeros(images).index_add(0, image, torch.ones_like(image))
    slot = torch.arange(len(image), device=image.device) - (counts.cumsum(0) - counts)[image]
    most = int(counts.max()) if len(counts) else 0
    x0, y0, x1, y1 = boxes[:, :, None].unbind(dim=1)
    y, x = (torch.arange(pixels, device=boxes.device) for pixels in size)
    rows = values.new_zeros(images, most, size[0])
    columns = values.new_zeros(images, most, size[1])
    rows[image, slot] = ((y >= y0) & (y <= y1)) * values[:, None]
    columns[image, slot] = ((x >= x0) & (x <= x1)).to(values)
    return rows.transpose(1, 2) @ columns
