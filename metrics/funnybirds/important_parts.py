"""Which parts an explanation calls important, and how many they are."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from protometry.metrics.entry import Words
from protometry.metrics.funnybirds.part_importance import check_instances, slots
from protometry.metrics.funnybirds.threshold_mean import ThresholdMean
from protometry.metrics.primitives.checks import check_at_least, check_choice, check_tensor, check_values
from protometry.metrics.primitives.chunks import image_chunks
from protometry.metrics.primitives.regions import count_pixels

CoverageVariant = Literal["fixed", "reference"]


_CHANNELS = 3  # the released code counts a covered pixel once per colour channel


def part_thresholds(number: int = 80) -> Tensor:
    """The thresholds t of the FunnyBirds protocol, ``(number,)`` float64, ascending; at least 2.

    Source: Hesse et al. (2023): evenly spaced from 0.01 to 0.50.

    Example:
        >>> part_thresholds(3)
        tensor([0.0100, 0.2550, 0.5000], dtype=torch.float64)
    """
    check_at_least("number", number, 2)
    return torch.linspace(0.01, 0.50, number, dtype=torch.float64)


def important_parts(importance: Tensor, total: Tensor, thresholds: Tensor) -> Tensor:
    """The important parts P_t by the share rule: parts with more than a share t of the whole attribution.

    Source: Opłatek et al. (2024), section 3.2. ``P_t = {j : PI_j > t · ΣA}``. The sets are nested in t: they shrink as
    t grows where ΣA > 0, and grow with t where ΣA < 0. ΣA ≤ 0 makes the rule permissive; count such images.

    Args:
        importance: ``(B, N)`` float, see :func:`protometry.metrics.functional.part_importance`.
        total: ``(B,)`` float, ΣA of each image.
        thresholds: ``(T,)`` float.

    Returns:
        ``(B, T, N)`` bool.

    Raises:
        ValueError: if a value is not finite, since its part would
            otherwise count as unimportant.

    Example:
        >>> importance, total = torch.tensor([[4.0, 1.0, 0.0, -1.0, 2.0]]), torch.tensor([10.0])
        >>> important_parts(importance, total, torch.tensor([0.05, 0.1])).int().tolist()
        [[[1, 1, 0, 0, 1], [1, 0, 0, 0, 1]]]
    """
    check_tensor("importance", importance, ("B", "N"), "float")
    check_tensor("total", total, (len(importance),), "float")
    check_tensor("thresholds", thresholds, ("T",), "float")
    check_values(
        importance.isfinite().all(dim=1) & total.isfinite(),
        "Expected arguments `importance` and `total` to be finite, but got NaN or infinity. Leave out images whose "
        "attribution is not finite.",
    )
    needed = thresholds.double() * total.double()[:, None]
    return importance.double()[:, None] > needed[:, :, None]


def covered_parts(
    region: Tensor,
    instance_masks: Tensor,
    instance_part: Tensor,
    thresholds: Tensor,
    num_parts: int = 5,
    variant: CoverageVariant = "fixed",
) -> Tensor:
    """The important parts P_t by the coverage rule: parts with an instance that is covered by more than a share t.

    Source: Hesse et al. (2023), for the boxes of ProtoPNet. ``P_t = {j : |region ∩ mask_i| > t |mask_i| for an instance
    i of j}``. A hidden instance, with an empty mask, is never covered. The sets shrink as t grows.

    Args:
        region: ``(B, H, W)`` bool, the union of the boxes.
        instance_masks: ``(B, I, H, W)`` bool, not dilated.
        instance_part: ``(B, I)`` int64, the part of each instance, negative for padding.
        thresholds: ``(T,)`` float >= 0.
        num_parts: N.
        variant: ``"reference"`` counts a covered pixel three times, once per colour channel, as the released code did,
            so that the threshold is in fact t / 3.

    Returns:
        ``(B, T, N)`` bool.

    Example:
        >>> region, mask = torch.zeros(1, 3, 3, dtype=torch.bool), torch.ones(1, 1, 3, 3, dtype=torch.bool)
        >>> region[0, 0, 0] = True  # 1 of 9 pixels
        >>> covered_parts(region, mask, torch.tensor([[0]]), torch.tensor([0.1, 0.2]), num_parts=1).flatten().tolist()
        [True, False]
    """
    check_choice("variant", variant, get_args(CoverageVariant))
    check_tensor("region", region, ("B", "H", "W"), "bool")
    check_tensor("thresholds", thresholds, ("T",), "float")
    check_instances(region, instance_masks, instance_part, num_parts)
    chunks = image_chunks(region, instance_masks)
    inside = torch.cat([count_pixels(masks & part[:, None]) for part, masks in chunks])
    area = count_pixels(instance_masks)
    times = _CHANNELS if variant == "reference" else 1
    share = (times * inside / area).masked_fill(area == 0, 0)
    best = share.new_zeros(len(region), num_parts + 1)
    best.scatter_reduce_(1, slots(instance_part, num_parts), share, "amax")
    return best[:, None, :num_parts] > thresholds.double()[:, None]


class ImportantParts(ThresholdMean):
    """Mean number of important parts, |P_t| (lower is sparser).

    Inputs:
        predicted_parts: ``(B, T, N)`` bool, important parts P_t of the explanation of the predicted class.

    Example:
        >>> metric, parts = ImportantParts(2, num_parts=2), torch.tensor([[[True, True], [True, False]]])
        >>> metric.update(parts, torch.tensor([0]))
        >>> metric.compute()
        tensor([2., 1.], dtype=torch.float64)
    """

    unit = "count"
    value_range = (0.0, 5.0)
    higher_is_better = False

    def __init__(self, num_thresholds: int = 80, num_parts: int = 5, **kwargs: Any) -> None:
        super().__init__(num_thresholds, **kwargs)
        check_at_least("num_parts", num_parts, 1)
        self.value_range = (0.0, float(num_parts))

    def update(self, predicted_parts: Tensor, sample_ids: Tensor) -> None:
        shape = ("B", self.num_thresholds, int(self.value_range[1]))
        check_tensor("predicted_parts", predicted_parts, shape, "bool")
        self._accumulate(predicted_parts.sum(dim=2).double(), sample_ids)


IMPORTANT_PARTS_WORDS = Words(
    question="How many parts are called important?",
    name="Important parts",
    formula="mean number of parts in P(ŷ)",
    source="none",
    misread="Fewer parts are not better if they do not suffice.",
)
