"""The importance of a part: the attribution summed over its pixels."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from protometry.metrics.primitives.checks import check_at_least, check_ids, check_tensor
from protometry.metrics.primitives.chunks import image_chunks
from protometry.metrics.primitives.regions import all_finite


def part_dilation(height: int) -> int:
    """Side of the square by which part masks are dilated, in pixels: 5 at a height of 256, odd.

    Source: Hesse et al. (2023) for 256 pixels; at another height the largest odd number ≤ max(1, 5 H / 256).

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

    Example:
        >>> attribution, masks = torch.zeros(1, 8, 8), torch.zeros(1, 2, 8, 8, dtype=torch.bool)
        >>> attribution[0, 2, 2], attribution[0, 5, 5], masks[0, 0, 3, 3], masks[0, 1, 4, 4] = 1, 2, True, True
        >>> part_importance(attribution, masks, torch.tensor([[0, 0]]), num_parts=2)
        tensor([[6., 0.]], dtype=torch.float64)
    """
    check_tensor("attribution", attribution, ("B", "H", "W"), "float")
    check_instances(attribution, instance_masks, instance_part, num_parts)
    if dilation < 1 or dilation % 2 == 0:
        raise ValueError(f"Expected argument `dilation` to be odd and at least 1, but got {dilation}.")
    chunks = image_chunks(attribution, instance_masks)
    sums = [_sum_over_instances(maps, masks, dilation) for maps, masks in chunks]
    finite = all_finite(attribution)[:, None]
    importance = attribution.new_zeros(len(attribution), num_parts + 1, dtype=torch.float64)
    importance.scatter_add_(1, slots(instance_part, num_parts), torch.cat(sums).masked_fill(~finite, 0))
    return importance[:, :num_parts].masked_fill(~finite, torch.nan)


def _sum_over_instances(attribution: Tensor, masks: Tensor, dilation: int) -> Tensor:
    """``(B, I)`` float64; a square dilates rows and columns one after the other."""
    pad = dilation // 2
    dilated = F.max_pool2d(masks.flatten(0, 1)[:, None].float(), (dilation, 1), stride=1, padding=(pad, 0))
    dilated = F.max_pool2d(dilated, (1, dilation), stride=1, padding=(0, pad)).view(masks.shape)
    return (dilated * attribution.double()[:, None]).sum(dim=(2, 3))


def check_instances(image: Tensor, instance_masks: Tensor, instance_part: Tensor, num_parts: int) -> None:
    """Refuse masks and parts of instances that do not fit ``(B, H, W)`` images."""
    images, height, width = image.shape
    check_tensor("instance_masks", instance_masks, (images, "I", height, width), "bool")
    check_ids("instance_part", instance_part, (images, instance_masks.shape[1]), num_parts)


def slots(instance_part: Tensor, num_parts: int) -> Tensor:
    """Where to add each instance: at its part, or in a last slot of its own for padding."""
    return instance_part.masked_fill(instance_part < 0, num_parts)
