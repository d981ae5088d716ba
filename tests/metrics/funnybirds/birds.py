"""Random birds, their masks and class tables."""

import torch

from protometry.metrics.functional import part_thresholds

TABLE = torch.tensor([[0, 0, 0], [0, 1, 1], [1, 0, 1]])
T = part_thresholds(7)


def draws(seed):
    return torch.Generator().manual_seed(seed)


def scene(seed, images=5, instances=4, parts=3, height=9, width=7):
    """Attribution, masks (some hidden, some overlapping) and parts (some padded) of a batch."""
    g = draws(seed)
    attribution = torch.randn(images, height, width, generator=g)
    masks = torch.rand(images, instances, height, width, generator=g) < 0.15
    masks[0, 1] = False
    part = torch.randint(-1, parts, (images, instances), generator=g)
    return attribution, masks, part


def booleans(seed, *shape):
    return torch.rand(shape, generator=draws(seed)) < 0.5


def variants(seed, classes, kinds=(2, 2, 3, 3, 2)):
    return torch.stack([torch.randint(kind, (classes,), generator=draws(seed + j)) for j, kind in enumerate(kinds)], 1)


def sets_of(rows):
    return [{j for j, there in enumerate(row) if there} for row in rows.tolist()]


def equal(found, expected):
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), equal_nan=True, rtol=0, atol=1e-12)


def normal(seed, *shape):
    return torch.randn(shape, generator=draws(seed))
