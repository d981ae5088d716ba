"""A record of saliency, part of it undefined, and the mean over images by the definition."""

from __future__ import annotations

import math

import torch

NAN = math.nan
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
CASE = torch.tensor([[[[1.0, 3.0, 0.0], [1.0, 0.0, -5.0]]]])
MASK = torch.tensor([[[True, False, False], [True, False, False]]])


def record(seed=5, dtype=torch.float32):
    """Two maps of eleven images: 3 maps flat or negative, 1 not finite, an empty object, and one that fills all."""
    generator = torch.Generator().manual_seed(seed)
    saliency = torch.randn(11, 2, 5, 6, generator=generator)
    masks = torch.rand(11, 5, 6, generator=generator) < 0.4
    saliency[1, 0], saliency[2], masks[3], masks[4] = 1, -saliency[2].abs(), False, True
    saliency[5, 1, 2, 2] = NAN if seed % 2 else math.inf
    return {"saliency": saliency.to(dtype), "object_masks": masks}


UNDEFINED = 8  # entries of the record
NO_OBJECT = {"object_masks": torch.zeros(11, 5, 6, dtype=torch.bool)}


def usable(values, mask):
    """Whether a map is finite, not flat and somewhere positive, and the object neither missing nor all of the image."""
    return (
        all(map(math.isfinite, values))
        and max(values) > 0
        and max(values) - min(values) > 1e-5 * max(map(abs, values))
        and any(mask)
        and not all(mask)
    )


def slow_values(value, data):
    """One value per map, ``value(map, mask)`` of flat lists."""
    pairs = zip(data["saliency"].double().flatten(2), data["object_masks"].flatten(1).tolist(), strict=True)
    return [[value(row, mask) if usable(row, mask) else NAN for row in maps.tolist()] for maps, mask in pairs]


def image_mean(value):
    """Oracle: mean over the maps of an image, then over images."""

    def oracle(data):
        rows = [[entry for entry in row if math.isfinite(entry)] for row in slow_values(value, data)]
        means = [sum(row) / len(row) for row in rows if row]
        return sum(means) / len(means) if means else NAN

    return oracle
