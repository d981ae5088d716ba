"""Projection: exact over batches, orders and processes; afterwards every prototype is its own patch."""

from __future__ import annotations

import pytest
import torch

from protometry.callbacks.phases.projection import (
    distinct_patches,
    nearest_patches,
)
from tests.callbacks.phases.test_projection import (
    Transparent,
    as_rows,
    batches,
    brute_force,
    draw,
    nearest_images,
    six_nearest,
)


def nearest_of_rank(rank, world_size, data, vectors, parts):
    part = parts[rank]
    own = batches(data, 3, torch.tensor(part, dtype=torch.int64)) if part else []
    model, device = Transparent(vectors, 3), torch.device("cpu")
    return nearest_patches(model, own, device), distinct_patches(model, own, device)[0], six_nearest(model, own)


@pytest.mark.parametrize("parts", [
    [list(range(0, 17, 2)), list(range(1, 17, 2))],  # strided halves of an odd number; duplicates lie on both
    [[], list(range(17))],
    [list(range(17)), []],
    [list(range(17)), list(range(17))],  # padding: both own every patch
    [list(range(12)), list(range(5, 17))],
    [[0, 1], [2]],  # fewer than six images in all
], ids=["strided", "first empty", "second empty", "both all", "overlapping", "few"])  # fmt: skip
def test_two_processes_equal_one(ddp_pool, parts):
    data, model = draw(seed=2)
    vectors = model.vectors.detach()
    data = {name: tensor[sorted({*parts[0], *parts[1]})] for name, tensor in data.items()}
    expected, (apart, _) = brute_force(data, model), distinct_patches(model, batches(data, 4), model.device)
    six = [each[:6] for each in nearest_images(data, model, own=False)]
    for nearest, distinct, of_six in ddp_pool.run(nearest_of_rank, data, vectors, parts):
        assert as_rows(nearest) == expected
        assert as_rows(distinct) == as_rows(apart)
        assert of_six == six
