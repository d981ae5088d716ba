"""Random scores of units, and the mean of what is defined."""

import torch

USED = torch.tensor([True, True, False, True, True])
LABELS = torch.arange(13) % 3


def drawn(seed, *shape):
    """Of a normal distribution."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def scores():
    """Scores of five units on thirteen images: one in two groups, one the same on all images."""
    values = drawn(6, 13, 5)
    values[:6, 1] += 4
    values[:, 3] = 0.7
    return values


def planted():
    """Labels of 400 images; features that half of the 20 classes share, noise, and class detectors."""
    labels = torch.arange(400) % 20
    shared = (torch.arange(20)[:, None] + torch.arange(10)) % 4 < 2
    present = shared[labels].float() + drawn(9, 400, 10) / 20
    return labels, present, drawn(10, 400, 10), torch.eye(20)[labels] + drawn(11, 400, 20) / 1000
