"""A record of saliency, part of it undefined, and the mean over images by the definition."""

import math

import torch

from tests.metrics.tester import mean

NO_OBJECT = {"object_masks": torch.zeros(11, 5, 6, dtype=torch.bool)}


def record(seed=5):
    """Two maps of eleven images: 3 maps flat or negative, 1 not finite, an empty object, and one that fills all."""
    generator = torch.Generator().manual_seed(seed)
    saliency = torch.randn(11, 2, 5, 6, generator=generator)
    masks = torch.rand(11, 5, 6, generator=generator) < 0.4
    saliency[1, 0], saliency[2], masks[3], masks[4] = 1, -saliency[2].abs(), False, True
    saliency[5, 1, 2, 2] = math.nan if seed % 2 else math.inf
    return {"saliency": saliency, "object_masks": masks}


def slow_values(value, data, usable):
    """One value per map, ``value(map, mask)`` of flat lists, NaN where they are not ``usable(map, mask)``."""
    pairs = zip(data["saliency"].double().flatten(2), data["object_masks"].flatten(1).tolist(), strict=True)
    return [[value(row, mask) if usable(row, mask) else math.nan for row in maps.tolist()] for maps, mask in pairs]


def image_mean(value, usable):
    """Oracle: mean over the maps of an image, then over images."""
    return lambda data: mean(map(mean, slow_values(value, data, usable)))
