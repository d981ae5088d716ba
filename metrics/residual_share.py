"""How much a hybrid model decides outside its units."""

from __future__ import annotations

from torch import Tensor

from metrics.base import ImageMean
from metrics.functional.residual_share import residual_share


class ResidualShare(ImageMean):
    """Mean share of the residual in the logit of the predicted class (lower is better).

    Source: none; the hybrid models of Yuksekgonul et al. (2023) add such a residual. ``|r| / (|r| + |e|)`` with the
    residual r of the predicted class and what its units contribute, e, without the bias. An image with both 0 is
    undefined. Interval: that of a mean over images.

    Args:
        kwargs: arguments of :class:`torchmetrics.Metric`.

    Inputs:
        logits: ``(B, K)`` float.
        residual: ``(B, K)`` float, the part of the logits that no unit explains.
        unit_logits: ``(B, K)`` float, what the units contribute, without bias.

    Example:
        >>> import torch
        >>> metric = ResidualShare()
        >>> metric.update(torch.tensor([[3.0, 1.0]]), torch.tensor([[-1.0, 9.0]]), torch.tensor([[4.0, 0.0]]))
        >>> metric.compute()
        tensor(0.2000, dtype=torch.float64)
    """

    name = "residual_share"
    unit = "fraction"
    value_range = (0.0, 1.0)
    reads = ("logits", "residual", "unit_logits")
    higher_is_better = False

    def update(self, logits: Tensor, residual: Tensor, unit_logits: Tensor) -> None:
        """Add a batch."""
        self._accumulate(residual_share(logits, residual, unit_logits))
