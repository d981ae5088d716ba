"""Units of a model without concepts are named on the training images, exactly over processes."""

import torch

from tests.callbacks.evaluation.test_named_units import IMAGES, named


def named_on(rank, world_size, shares):
    return named(shares[rank])


def test_every_share_of_the_images_gives_the_same(ddp_pool):
    rows, own = torch.arange(IMAGES), torch.tensor([0, 1, 2, -1, 0, 1])
    expected = named(rows)
    for shares in ([rows[::2], rows[1::2]], [rows[:0], rows]):
        assert ddp_pool.run(named_on, shares) == [expected, expected]
    assert named(rows, own) == ([0, 1, 2, -1, 0, -1], expected[1])  # the model's names stay, but for inactive units
