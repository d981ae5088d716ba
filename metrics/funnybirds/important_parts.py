"""Kernels of FunnyBirds: the interface functions, from an explanation to the importance of parts and important parts.

Parts come from a class table of N parts; an instance is one of the visible pieces of a part, such as one of two eyes.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from metrics.primitives.checks import check_at_least, check_choice, check_ids, check_tensor
from metrics.primitives.chunks import image_chunks
from metrics.primitives.regions import all_finite, count_pixels

CoverageVariant = Literal["fixed", "reference"]
_CHANNELS = 3  # the released code counts a covered pixel once per colour channel


def part_thresholds(number: int = 80) -> Tensor:
    """The thresholds t of the FunnyBirds protocol.

    Source: Hesse et al. (2023): evenly spaced from 0.01 to 0.50.

    Args:
        number: of thresholds, at least 2.

    Returns:
        ``(number,)`` float64, ascending.

    Raises:
        ValueError: if ``number`` is below 2.

    Example:
        >>> part_thresholds(3)
        tensor([0.0100, 0.2550, 0.5000], dtype=torch.float64)
    """
    check_at_least("number", number, 2)
    return torch.linspace(0.01, 0.50, number, dtype=torch.float64)


def part_dilation(height: int) -> int:
    """Side of the square by which part masks are dilated, in pixels: 5 at a height of 256.

    Source: Hesse et al. (2023) for 256 pixels; at another height the largest odd number ≤ max(1, 5 H / 256).

    Args:
        height: of the image in pixels, at least 1.

    Returns:
        An odd number.

    Raises:
        ValueError: if ``height`` is below 1.

    Example:
        >>> [part_dilation(height) for height in (64, 128, 224, 256, 512)]
        [1, 1, 3, 5, 9]
    """
    check_at_least("height", height, 1)
    return max(1, (5 * height // 256 + 1) // 2 * 2 - 1)


def part_importance(
    attribution: Tensor, instance_masks: Tensor, instance_part: Tensor, num_parts: int = 5, dilation: int = 5
) -> Tensor:
    """The importance PI of each part: the attribution summed over the dilated masks of its instances.

    Source: Hesse et al. (2023), section 4; Opłatek et al. (2024), section 3.2. ``PI_j = Σ_{i: part_i = j} Σ_pixels A ·
    dilate(mask_i)`` with A = ``attribution``. Pixels in two instances of a part count twice.

    Args:
        attribution: ``(B, H, W)`` float, signed.
        instance_masks: ``(B, I, H, W)`` bool; an instance without any pixel is hidden and adds 0.
        instance_part: ``(B, I)`` int64, the part of each instance, negative for padding.
        num_parts: N; larger than the number of parts where background objects follow them.
        dilation: side in pixels of the square that dilates a mask, odd; 1 to dilate nothing. See :func:`part_dilation`.

    Returns:
        ``(B, N)`` float64; NaN throughout where the attribution is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above, a part is ``num_parts`` or more, or ``dilation`` is
            even.

    Example:
        >>> attribution, masks = torch.zeros(1, 8, 8), torch.zeros(1, 2, 8, 8, dtype=torch.bool)
        >>> attribution[0, 2, 2], attribution[0, 5, 5], masks[0, 0, 3, 3], masks[0, 1, 4, 4] = 1, 2, True, True
        >>> part_importance(attribution, masks, torch.tensor([[0, 0]]), num_parts=2)
        tensor([[6., 0.]], dtype=torch.float64)
    """
    check_tensor("attribution", attribution, ("B", "H", "W"), "float")
    _check_instances(attribution, instance_masks, instance_part, num_parts)
    if dilation < 1 or dilation % 2 == 0:
        raise ValueError(f"Expected argument `dilation` to be odd and at least 1, but got {dilation}.")
    chunks = image_chunks(attribution, instance_masks)
    sums = [_sum_over_instances(maps, masks, dilation) for maps, masks in chunks]
    finite = all_finite(attribution)[:, None]
    importance = attribution.new_zeros(len(attribution), num_parts + 1, dtype=torch.float64)
    importance.scatter_add_(1, _slots(instance_part, num_parts), torch.cat(sums).masked_fill(~finite, 0))
    return importance[:, :num_parts].masked_fill(~finite, torch.nan)


def important_parts(importance: Tensor, total: Tensor, thresholds: Tensor) -> Tensor:
    """The important parts P_t by the share rule: parts with more than a share t of the whole attribution.

    Source: Opłatek et al. (2024), section 3.2. ``P_t = {j : PI_j > t · ΣA}``. The sets are nested in t: they shrink as
    t grows where ΣA > 0, and grow with t where ΣA < 0. ΣA ≤ 0 makes the rule permissive; count such images.

    Args:
        importance: ``(B, N)`` float, see :func:`part_importance`.
        total: ``(B,)`` float, ΣA of each image.
        thresholds: ``(T,)`` float.

    Returns:
        ``(B, T, N)`` bool; nothing is important where the attribution is not finite.

    Raises:
        ValueError: if a shape or dtype differs from the above.

    Example:
        >>> importance, total = torch.tensor([[4.0, 1.0, 0.0, -1.0, 2.0]]), torch.tensor([10.0])
        >>> important_parts(importance, total, torch.tensor([0.05, 0.1])).int().tolist()
        [[[1, 1, 0, 0, 1], [1, 0, 0, 0, 1]]]
    """
    check_tensor("importance", importance, ("B", "N"), "float")
    check_tensor("total", total, (len(importance),), "float")
    check_tensor("thresholds", thresholds, ("T",), "float")
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
    """The important parts P_t by the coverage rule: parts with an instance of which a region covers more than t.

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

    Raises:
        ValueError: if a shape or dtype differs from the above, a part is ``num_parts`` or more, or ``variant`` is
            unknown.

    Example:
        >>> region, mask = torch.zeros(1, 3, 3, dtype=torch.bool), torch.ones(1, 1, 3, 3, dtype=torch.bool)
        >>> region[0, 0, 0] = True  # 1 of 9 pixels
        >>> covered_parts(region, mask, torch.tensor([[0]]), torch.tensor([0.1, 0.2]), num_parts=1).flatten().tolist()
        [True, False]
    """
    check_choice("variant", variant, get_args(CoverageVariant))
    check_tensor("region", region, ("B", "H", "W"), "bool")
    check_tensor("thresholds", thresholds, ("T",), "float")
    _check_instances(region, instance_masks, instance_part, num_parts)
    chunks = image_chunks(region, instance_masks)
    inside = torch.cat([count_pixels(masks & part[:, None]) for part, masks in chunks])
    area = count_pixels(instance_masks)
    times = _CHANNELS if variant == "reference" else 1
    share = (times * inside / area).masked_fill(area == 0, 0)
    best = share.new_zeros(len(region), num_parts + 1)
    best.scatter_reduce_(1, _slots(instance_part, num_parts), share, "amax")
    return best[:, None, :num_parts] > thresholds.double()[:, None]


def subset_codes(kept: Tensor) -> Tensor:
    """The number of a subset of parts: the sum of 2^j over its parts j.

    Args:
        kept: ``(..., N)`` bool, N ≤ 62.

    Returns:
        ``(...)`` int64 in ``[0, 2^N)``.

    Raises:
        ValueError: if ``kept`` is not bool or has no part axis.

    Example:
        >>> subset_codes(torch.tensor([True, False, True]))
        tensor(5)
    """
    if kept.ndim < 1 or kept.dtype != torch.bool:
        raise ValueError(
            f"Expected argument `kept` to be of shape (..., N) and dtype bool, but got {tuple(kept.shape)} "
            f"{kept.dtype}."
        )
    return (kept.long() << torch.arange(kept.shape[-1], device=kept.device)).sum(dim=-1)


def _check_instances(image: Tensor, instance_masks: Tensor, instance_part: Tensor, num_parts: int) -> None:
    images, height, width = image.shape
    check_tensor("instance_masks", instance_masks, (images, "I", height, width), "bool")
    check_tensor("instance_part", instance_part, (images, instance_masks.shape[1]), "int64")
    check_ids("instance_part", instance_part, num_parts)


def _slots(instance_part: Tensor, num_parts: int) -> Tensor:
    """Where to add each instance: at its part, or in a last slot of its own for padding."""
    return instance_part.masked_fill(instance_part < 0, num_parts)


def _sum_over_instances(attribution: Tensor, masks: Tensor, dilation: int) -> Tensor:
    """``(B, I)`` float64; a square dilates rows and columns one after the other."""
    pad = dilation // 2
    dilated = F.max_pool2d(masks.flatten(0, 1)[:, None].float(), (dilation, 1), stride=1, padding=(pad, 0))
    dilated = F.max_pool2d(dilated, (1, dilation), stride=1, padding=(0, pad)).view(masks.shape)
    return (dilated * attribution.double()[:, None]).sum(dim=(2, 3))
