"""Whether explanations lie on the object at all."""

from __future__ import annotations

from torch import Tensor

from metrics.functional.localisation import energy_pointing_game, pointing_game, region_intersection_over_union
from metrics.image_mean import ImageMean


class PointingGame(ImageMean):
    """Share of explanations whose peak lies in the object.

    Source and definition: :func:`metrics.functional.pointing_game`. Interval: normal over images, whose values are
    shares if there are several units.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> metric = PointingGame()
        >>> metric.update(torch.tensor([[[[1.0, 3.0]], [[4.0, 3.0]]]]), torch.tensor([[[True, False]]]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "pointing_game"
    unit = "fraction"
    reads = ("saliency", "object_masks")
    higher_is_better = True

    def update(self, saliency: Tensor, object_masks: Tensor) -> None:
        """Add a batch.

        Args:
            saliency: ``(B, k, H, W)`` float, signed.
            object_masks: ``(B, H, W)`` bool.
        """
        self._accumulate(pointing_game(saliency.detach(), object_masks))


class EnergyPointingGame(ImageMean):
    """Mean share of positive relevance that lies in the object.

    Source and definition: :func:`metrics.functional.energy_pointing_game`. Interval: normal over images.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> metric = EnergyPointingGame()
        >>> metric.update(torch.tensor([[[[1.0, 3.0, -2.0]]]]), torch.tensor([[[True, False, False]]]))
        >>> metric.compute()
        tensor(0.2500, dtype=torch.float64)
    """

    name = "energy"
    unit = "fraction"
    reads = ("saliency", "object_masks")
    higher_is_better = True

    def update(self, saliency: Tensor, object_masks: Tensor) -> None:
        """Add a batch.

        Args:
            saliency: ``(B, k, H, W)`` float, signed.
            object_masks: ``(B, H, W)`` bool.
        """
        self._accumulate(energy_pointing_game(saliency.detach(), object_masks))


class RegionIntersectionOverUnion(ImageMean):
    """Mean overlap of the most relevant 5 % of pixels with the object.

    Source and definition: :func:`metrics.functional.region_intersection_over_union`. Interval: normal over images.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> metric = RegionIntersectionOverUnion()
        >>> metric.update(torch.tensor([[[[1.0, 3.0, -2.0]]]]), torch.tensor([[[True, True, False]]]))
        >>> metric.compute()
        tensor(0.5000, dtype=torch.float64)
    """

    name = "iou"
    unit = "fraction"
    reads = ("saliency", "object_masks")
    higher_is_better = True

    def update(self, saliency: Tensor, object_masks: Tensor) -> None:
        """Add a batch.

        Args:
            saliency: ``(B, k, H, W)`` float, signed.
            object_masks: ``(B, H, W)`` bool.
        """
        self._accumulate(region_intersection_over_union(saliency.detach(), object_masks))
