"""The constants of the selection of features against loops over images by their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from protometry.lightning_modules.heads.feature_constants import FeatureSums, _scaled

F, K, CPU = 7, 3, torch.device("cpu")


def draw(images=13, seed=0):
    """Feature 1 is 0 everywhere, feature 2 is 4 times feature 0, class 2 has no image."""
    generator = torch.Generator().manual_seed(seed)
    maps = torch.rand(images, F, 3, 4, generator=generator) * 5
    maps[:, 1], maps[:, 2] = 0, 4 * maps[:, 0]
    return maps, torch.arange(images) % 2


def summed(maps, labels, size=13):
    sums = FeatureSums.empty(K, F, CPU)
    for part, names in zip(maps.split(size), labels.split(size), strict=True):
        sums.update(part, names)
    return sums


def by_definition(maps, labels):
    """Fit, redundancy, and the sums Σ ω·peak and -Σ ω·[on the border] per image, before they are scaled."""
    values = maps.double().mean((2, 3)).numpy()
    fit = np.zeros((F, K))
    for u in range(F):
        for k in range(K):
            shown = (labels == k).numpy().astype(float)
            if values[:, u].std() > 0 and shown.std() > 0:
                fit[u, k] = np.corrcoef(values[:, u], shown)[0, 1]
    fit /= np.abs(fit).max()
    lengths = np.linalg.norm(fit, axis=1)
    redundancy = np.zeros((F, F))
    for u in range(F):
        for v in range(F):
            if u != v and lengths[u] * lengths[v] > 0:
                redundancy[u, v] = max(fit[u] @ fit[v] / (lengths[u] * lengths[v]), 0)
    local, edge = np.zeros(F), np.zeros(F)
    for image, row in zip(maps.double().numpy(), values, strict=True):
        for u in range(F):
            y, x = np.unravel_index(image[u].argmax(), (3, 4))
            weight = row[u] / row.sum()
            local[u] += weight * np.exp(image[u]).max() / np.exp(image[u]).sum()
            edge[u] -= weight * (y in (0, 2) or x in (0, 3))
    return fit, redundancy, local / len(maps), edge


@pytest.mark.parametrize("seed", range(3))
def test_by_definition(seed):
    maps, labels = draw(seed=seed)
    constants = summed(maps, labels).constants()
    fit, redundancy, local, edge = by_definition(maps, labels)
    assert constants.fit.numpy() == pytest.approx(fit, abs=1e-6)
    assert constants.redundancy.numpy() == pytest.approx(redundancy, abs=1e-6)
    assert constants.constant.tolist() == [u == 1 for u in range(F)]
    values = maps.double().mean((2, 3))
    assert constants.mean.numpy() == pytest.approx(values.mean(0).numpy(), rel=1e-6)
    assert constants.std.numpy() == pytest.approx(values.std(0, correction=0).numpy(), rel=1e-6)
    scaled = _scaled(torch.tensor(local))
    inside = _scaled(torch.tensor(edge)) >= 0
    expected = _scaled(torch.where(inside, scaled, scaled.min()))
    assert constants.locality.numpy() == pytest.approx(expected.numpy(), abs=1e-6)


@pytest.mark.parametrize("size", [1, 5])
def test_batches_and_their_order_do_not_matter(size):
    (maps, labels), order = draw(), torch.randperm(13, generator=torch.Generator().manual_seed(1))
    one, other = summed(maps, labels).constants(), summed(maps[order], labels[order], size).constants()
    for name, value in vars(one).items():
        torch.testing.assert_close(getattr(other, name), value, rtol=1e-9, atol=1e-9)


ROOT = math.sqrt(0.1)


@pytest.mark.parametrize(("values", "expected"), [
    # two clusters; 30 and 31 are brought to 3, the mean is 1.8, and so is the largest distance from it
    ([0, 1, 2, 3, 0, 1, 2, 3, 30, 31], [ROOT * (v - 1.8) / 1.8 for v in (0, 1, 2, 3, 0, 1, 2, 3, 3, 3)]),
    # -10 is brought to -3, but 2 to 3: outliers keep their sign; the mean is -2.25
    ([-3] * 6 + [-10, 2], [ROOT * (v + 2.25) / 5.25 for v in [-3] * 7 + [3]]),
    ([1] * 4 + [2] * 5 + [3] * 4, [0] * 13),  # all are brought to 2
    ([0.1] * 3, [0] * 3),  # whose mean is not 0.1 in floating point
])  # fmt: skip
def test_scaled_by_hand(values, expected):
    assert _scaled(torch.tensor(values, dtype=torch.float64)).tolist() == pytest.approx(expected)
