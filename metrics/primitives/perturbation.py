"""Perturbations of images, under which metrics measure what changes in an explanation.

Every random number is a function of (seed, sample id, unit rank, element index), never of a generator's state: batch
size, order and number of processes cannot move it, and every device gets the same bits.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from protometry.metrics.primitives.checks import check_tensor
from protometry.metrics.primitives.chunks import image_chunks

# Constants of SplitMix64 (Steele, Lea and Flood 2014), as two's complement int64
GAMMA = 0x9E3779B97F4A7C15 - 2**64
_MULTIPLIERS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))
_LEVELS = 2**16  # a uniform of 16 bits has this many values


def _xor_shift(bits: Tensor, shift: int) -> Tensor:
    logical = (bits >> shift).bitwise_and_((1 << (64 - shift)) - 1)  # int64 shifts copy the sign bit
    return bits.bitwise_xor_(logical)


def mix_bits(bits: Tensor) -> Tensor:
    """SplitMix64's finaliser, in place: every bit of the input moves every bit of the output."""
    for shift, multiplier in _MULTIPLIERS:
        bits = _xor_shift(bits, shift).mul_(multiplier)
    return _xor_shift(bits, 31)


def _keys(sample_ids: Tensor, ranks: Tensor, seed: int) -> Tensor:
    """One random int64 word per draw, ``(B, k)``."""
    check_tensor("sample_ids", sample_ids, ("B",), "int64")
    check_tensor("ranks", ranks, (len(sample_ids), "k"), "int64")
    key = mix_bits(torch.full_like(sample_ids, seed) + GAMMA)
    key = mix_bits((key ^ sample_ids) + GAMMA)
    return mix_bits((key[:, None] ^ ranks) + GAMMA)


def _counter(shape: tuple[int, ...], values_per_word: int, device: torch.device) -> Tensor:
    """What is added to a key for each int64 word of a draw."""
    words = -(-math.prod(shape) // values_per_word)
    return torch.arange(1, words + 1, device=device) * GAMMA


def _words(keys: Tensor, counter: Tensor) -> Tensor:
    """Random int64 words ``(B, k, count)``."""
    words = mix_bits(keys[..., None] + counter)
    return words if words.numel() else words.new_empty(words.shape)  # strides of 0 cannot be read as shorter words


def _shaped(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    return values[..., : math.prod(shape)].reshape(*values.shape[:-1], *shape)


@functools.cache
def normal_quantiles(device: torch.device) -> Tensor:
    """``(65536,)`` float32 standard normal quantiles at the midpoints of all 16-bit uniforms.

    Computed once in float64 on the CPU, because the quantile function differs in its last bit between devices.
    """
    uniform = (torch.arange(_LEVELS, dtype=torch.float64, device="cpu") + 0.5) / _LEVELS
    quantiles: Tensor = torch.special.ndtri(uniform)
    return quantiles.float().to(device)


def _normal_values(words: Tensor) -> Tensor:
    """Four standard normal values from each int64 word, ``(B, k, 4 count)`` float32."""
    index = words.view(torch.int16).int().add_(_LEVELS // 2)
    return normal_quantiles(words.device).index_select(0, index.flatten()).view_as(index)


def keyed_noise(sample_ids: Tensor, ranks: Tensor, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Standard normal noise that is a pure function of (seed, sample id, unit rank) and the element index.

    Source: SplitMix64 (Steele, Lea and Flood 2014) as a counter-based generator; inversion of the normal distribution
    function, by table, at the midpoint of a uniform of 16 bits. No value exceeds 4.33 in magnitude; the variance is
    0.99998 and the fourth moment 2.9991.

    Args:
        sample_ids: ``(B,)`` int64, the data set's ``sample_key``.
        ranks: ``(B, k)`` int64.
        shape: of one draw; its elements are counted in row-major order.
        seed: in the range of int64.

    Returns:
        ``(B, k, *shape)`` float32.

    Example:
        >>> ranks = torch.tensor([[0, 1]])
        >>> both = keyed_noise(torch.tensor([7]), ranks, (3, 4, 4))
        >>> torch.equal(keyed_noise(torch.tensor([7]), ranks[:, 1:], (3, 4, 4)), both[:, 1:])
        True
    """
    keys = _keys(sample_ids, ranks, seed)
    return _shaped(_normal_values(_words(keys, _counter(shape, 4, keys.device))), shape)


def keyed_uniform(sample_ids: Tensor, ranks: Tensor, shape: tuple[int, ...], seed: int = 0) -> Tensor:
    """Uniform noise on [-1, 1) that is a pure function of (seed, sample id, unit rank) and the element index.

    Source: SplitMix64 (Steele, Lea and Flood 2014) as a counter-based generator; 24 bits per value. Arguments and
    result as for :func:`keyed_noise`.

    Example:
        >>> draws = keyed_uniform(torch.tensor([7]), torch.tensor([[0]]), (1000,))
        >>> bool((draws >= -1).all() and (draws < 1).all())
        True
    """
    words = _words(_keys(sample_ids, ranks, seed), _counter(shape, 2, sample_ids.device))
    return _shaped((words.view(torch.int32) >> 8).float().mul_(2.0**-23), shape)


def random_cells(sample_ids: Tensor, unit_ids: Tensor, grid: tuple[int, int], seed: int = 0) -> Tensor:
    """A cell of the grid for each unit of an image, any as likely as any other: a control for the peak of the unit.

    Args:
        sample_ids: ``(B,)`` int64, the data set's ``sample_key``.
        unit_ids: ``(B, M)`` int64, so that a cell is a function of (seed, sample id, unit).
        grid: ``(h, w)`` cells.
        seed: in the range of int64.

    Returns:
        ``(B, M, 2)`` int64 (x, y) in the grid.

    Example:
        >>> cells = random_cells(torch.tensor([7, 8]), torch.tensor([[0, 3], [3, 5]]), (7, 7))
        >>> torch.equal(cells[:1, 1:], random_cells(torch.tensor([7]), torch.tensor([[3]]), (7, 7)))
        True
    """
    draws = keyed_uniform(sample_ids, unit_ids, (), seed).double()
    cells = ((draws + 1) / 2 * math.prod(grid)).long()
    return torch.stack([cells % grid[1], cells // grid[1]], dim=-1)


def completeness_perturbation(
    images: Tensor,
    boxes: Tensor,
    sample_ids: Tensor,
    sigma: Tensor | float = 0.05,
    seed: int = 0,
    clamp: bool = True,
) -> Tensor:
    """One noisy image per unit that is unchanged inside the unit's box.

    Source: Schlinge et al. (2025), section 5.1: ``clamp(images + sigma n, 0, 1)`` outside the box, with n from
    :func:`keyed_noise`. Their published tables used 0.05 in normalised units without clamping: pass ``0.05 std`` per
    channel and ``clamp=False``.

    Args:
        images: ``(B, 3, H, W)`` float in [0, 1].
        boxes: ``(B, k, 4)`` int64 inclusive pixels ``(x0, y0, x1, y1)``. Around an empty box everything is noisy, and
            the caller marks the unit as not valid.
        sample_ids: ``(B,)`` int64, the data set's ``sample_key``.
        sigma: standard deviation in [0, 1] units, or one per channel of shape ``(3, 1, 1)``.
        seed: of the noise.
        clamp: whether noisy pixels are brought back to [0, 1].

    Returns:
        ``(B, k, 3, H, W)`` of the dtype of ``images``.

    Example:
        >>> images = torch.full((1, 3, 2, 2), 0.5)
        >>> noisy = completeness_perturbation(images, torch.tensor([[[0, 0, 1, 0]]]), torch.tensor([7]))
        >>> (noisy == images[:, None])[0, 0, 0]
        tensor([[ True,  True],
                [False, False]])
    """
    check_tensor("images", images, ("B", 3, "H", "W"), "float")
    check_tensor("boxes", boxes, (len(images), "k", 4), "int64")
    check_tensor("sample_ids", sample_ids, (len(images),), "int64")
    shape = tuple(images.shape[1:])
    perturbed = images.new_empty(*boxes.shape[:2], *shape)
    ranks = torch.arange(boxes.shape[1], device=images.device).expand(len(images), -1)
    keys, counter = _keys(sample_ids, ranks, seed), _counter(shape, 4, images.device)
    for clean, *chunk in image_chunks(images[:, None], perturbed, keys, *outside_boxes(boxes, images)):
        for target, chunk_keys, rows, columns in image_chunks(*chunk, dim=1):
            noisy = _shaped(_normal_values(_words(chunk_keys, counter)), shape).mul_(sigma).add_(clean)
            if clamp:
                noisy.clamp_(0, 1)
            # with a weight of 0 or 1 exactly the one or the other, in half the time of `torch.where`
            torch.lerp(clean, noisy.to(clean.dtype), torch.maximum(rows, columns), out=target)
    return perturbed


def outside_boxes(boxes: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
    """1 for the rows ``(B, k, 1, H, 1)`` and the columns ``(B, k, 1, 1, W)`` of ``images`` outside the boxes, or 0."""
    x0, y0, x1, y1 = boxes[..., None].unbind(dim=2)
    y, x = (torch.arange(size, device=boxes.device) for size in images.shape[-2:])
    rows, columns = (y < y0) | (y > y1), (x < x0) | (x > x1)
    return rows[:, :, None, :, None].to(images.dtype), columns[:, :, None, None].to(images.dtype)


def shifted_maps(maps: Tensor, sample_ids: Tensor, seed: int = 0) -> Tensor:
    """Maps moved by a random number of rows and columns, the same for all maps of an image: a control for their place.

    What leaves the image on one side comes back on the other, so that a map keeps its values and their neighbours.

    Args:
        maps: ``(B, k, H, W)`` float.
        sample_ids: ``(B,)`` int64, the data set's ``sample_key``.
        seed: of the distances, which are uniform from 0 to H - 1 and W - 1, by :func:`keyed_uniform`.

    Example:
        >>> shifted_maps(torch.arange(6.0).view(1, 1, 2, 3), torch.tensor([2]))
        tensor([[[[3., 4., 5.],
                  [0., 1., 2.]]]])
    """
    check_tensor("maps", maps, (len(sample_ids), "k", "H", "W"), "float")
    draws = keyed_uniform(sample_ids, torch.zeros_like(sample_ids)[:, None], (2, 1), seed)[:, 0]
    images, units = (torch.arange(size, device=maps.device) for size in maps.shape[:2])
    rows, columns = (
        (torch.arange(size, device=maps.device) - ((draw + 1) / 2 * size).long()) % size
        for size, draw in zip(maps.shape[2:], draws.unbind(dim=1), strict=True)
    )
    return maps[images[:, None, None, None], units[:, None, None], rows[:, None, :, None], columns[:, None, None, :]]


def removal_order(maps: Tensor) -> Tensor:
    """The number of pixels that are taken away before each pixel, ``(B, k, H, W)`` int64 from 0 to H W - 1.

    The largest value of the map ``(B, k, H, W)`` goes first; equal ones in row-major order.

    Example:
        >>> removal_order(torch.tensor([[[[1.0, 3.0, 1.0]]]]))
        tensor([[[[1, 0, 2]]]])
    """
    order = maps.flatten(2).argsort(dim=2, descending=True, stable=True)
    return order.argsort(dim=2).view_as(maps)


def without_pixels(images: Tensor, order: Tensor, share: float) -> Tensor:
    """Images in which the first pixels of an order have the mean colour of the image.

    Source: Petsiuk et al. (2018), section 4.1, where pixels become 0 in deletion and appear on a blurred image in
    insertion. Here both use the mean colour: a blurred image still holds the colours that many units look for, and
    black is a colour that many images lack.

    Args:
        images: ``(B, 3, H, W)`` float.
        order: ``(B, k, H, W)`` int64, of :func:`removal_order`.
        share: of the pixels, in [0, 1], rounded to the next lower number of pixels.

    Returns:
        ``(B, k, 3, H, W)`` of the dtype of ``images``.

    Example:
        >>> image = torch.tensor([0.0, 0.5, 1.0]).expand(1, 3, 1, 3)
        >>> without_pixels(image, torch.tensor([[[[1, 0, 2]]]]), 2 / 3)[0, 0, 0]
        tensor([[0.5000, 0.5000, 1.0000]])
    """
    check_tensor("images", images, ("B", 3, "H", "W"), "float")
    check_tensor("order", order, (len(images), "k", *images.shape[2:]), "int64")
    gone = order < math.floor(share * order[0, 0].numel() + 1e-9)  # 1e-9: a whole number must survive the product
    return torch.where(gone[:, :, None], _mean_colours(images), images[:, None])


def only_boxes(images: Tensor, boxes: Tensor) -> Tensor:
    """Images that have their mean colour outside a box.

    Args:
        images: ``(B, 3, H, W)`` float.
        boxes: ``(B, k, 4)`` int64 inclusive pixels ``(x0, y0, x1, y1)``.

    Returns:
        ``(B, k, 3, H, W)`` of the dtype of ``images``.

    Example:
        >>> image = torch.tensor([0.0, 0.5, 1.0]).expand(1, 3, 1, 3)
        >>> only_boxes(image, torch.tensor([[[2, 0, 2, 0]]]))[0, 0, 0]
        tensor([[0.5000, 0.5000, 1.0000]])
    """
    check_tensor("images", images, ("B", 3, "H", "W"), "float")
    check_tensor("boxes", boxes, (len(images), "k", 4), "int64")
    return torch.where(torch.maximum(*outside_boxes(boxes, images)) > 0, _mean_colours(images), images[:, None])


def _mean_colours(images: Tensor) -> Tensor:
    """``(B, 1, 3, 1, 1)``, of the dtype of the images."""
    return images.double().mean(dim=(2, 3), keepdim=True).to(images.dtype)[:, None]
