from __future__ import annotations

import pytest
import torch

from protometry.explanations.relevance.start import relevance_start
from protometry.lightning_modules.contract import ModelOutput, UnitTable
from tests.explanations.small_models import rand, randn

close = torch.testing.assert_close


def start(latent, maps=None, vectors=None, pool="max", comparison="distance", unit=0, amount=1.0):
    """The start for one unit of one image, as ``(D, cells)``."""
    units = len(vectors) if vectors is not None else latent.shape[0]
    latent = latent[None, :, None, :]
    maps = latent if maps is None else maps.view(1, 1, 1, -1).expand(1, units, 1, -1)
    output = ModelOutput(torch.zeros(1, 2), torch.zeros(1, units), maps, latent)
    table = UnitTable(
        "feature", torch.ones(units) > 0, torch.ones(units, 2) > 0, pool, vectors=vectors, comparison=comparison
    )
    return relevance_start(output, table, torch.tensor([[unit]]), torch.tensor([[amount]]))[0, :, 0]


LATENT = torch.tensor([[1.0, 3.0, 0.0], [2.0, -1.0, 0.0]])  # channels, cells


def test_distance_by_hand():
    # at cell 1 the differences are 2 and -1: shares 1/4 : 1
    got = start(LATENT, torch.tensor([0.0, 5.0, 1.0]), torch.tensor([[1.0, 0.0]]))
    close(got, torch.tensor([[0.0, 0.2, 0.0], [0.0, 0.8, 0.0]]))


def test_an_exact_hit_shares_evenly():
    got = start(LATENT, torch.tensor([0.0, 5.0, 1.0]), torch.tensor([[3.0, -1.0]]))
    close(got[:, 1], torch.tensor([0.5, 0.5]))


@pytest.mark.parametrize("pool", ["max", "focal"])
def test_first_of_equal_cells(pool):
    got = start(LATENT, torch.tensor([1.0, 5.0, 5.0]), torch.tensor([[1.0, 0.0]]), pool)
    assert got.sum(0).tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("vector", "shares"),
    [
        ([1.0, 2.0], [1.0, 0.0]),  # products 3 and -2
        ([1.0, -2.0], [0.6, 0.4]),
        ([-1.0, 2.0], [0.6, 0.4]),  # none positive: by size
    ],
)
def test_projection_by_hand(vector, shares):
    got = start(LATENT, torch.tensor([0.0, 5.0, 1.0]), torch.tensor([vector]), comparison="projection")
    close(got[:, 1], torch.tensor(shares))
    assert not got[:, [0, 2]].any()


def test_units_of_parts_start_in_the_cells_of_their_parts():
    """Parts (1, 0) and (0, 1) in cells 2 and 0: cosines 1 and 0.8, though the second is longer. One cell for both."""
    latent = torch.tensor([[6.0, 0.0, 1.0], [8.0, 1.0, 0.0]]).view(1, 2, 1, 3)
    cells = torch.tensor([[[2, 0], [1, 1]]])
    output = ModelOutput(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2, 1, 3), latent, cells=cells)
    vectors = torch.tensor([[9.0, 0.0, 0.0, 2.0], [1.0, 1.0, 0.0, 1.0]])
    table = UnitTable("prototype", torch.ones(2) > 0, torch.ones(2, 2) > 0, "max", vectors=vectors,
                      comparison="projection", parts=2)  # fmt: skip
    first, second = (relevance_start(output, table, torch.tensor([[unit]]), torch.tensor([[1.8]])) for unit in (0, 1))
    close(first[0, :, 0], torch.tensor([[0.0, 0.0, 1.0], [0.8, 0.0, 0.0]]))
    close(second[0, :, 0], torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.8, 0.0]]))


def test_an_empty_cell_is_shared_by_the_vector():
    maps, vector = torch.tensor([0.0, 0.0, 9.0]), torch.tensor([[1.0, -3.0]])
    close(start(LATENT, maps, vector, comparison="projection")[:, 2], torch.tensor([0.25, 0.75]))


def test_a_channel_is_its_own_share():
    assert start(LATENT, unit=1, amount=3.0).tolist() == [[0, 0, 0], [3, 0, 0]]


def test_mean_pooled_channel():
    close(start(LATENT, pool="mean"), torch.tensor([[0.25, 0.75, 0.0], [0.0, 0.0, 0.0]]))
    close(start(LATENT, pool="mean", unit=1), torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))


@pytest.mark.parametrize(
    ("vector", "shares"),
    [
        ([1.0, 1.0], [[1, 3, 0], [2, 0, 0]]),
        ([1.0, -2.0], [[1, 3, 0], [0, 2, 0]]),
        ([-1.0, 0.0], [[1, 3, 0], [0, 0, 0]]),  # none positive: by size
        ([0.0, 0.0], [[0, 0, 0], [0, 0, 0]]),
    ],
)
def test_mean_pooled_vector(vector, shares):
    shares = torch.tensor(shares).float()
    got = start(LATENT, vectors=torch.tensor([vector]), pool="mean", comparison="projection", amount=2.0)
    close(got, 2 * shares / shares.sum().clamp(min=1))


def test_mean_pooled_on_an_empty_latent():
    got = start(torch.zeros(2, 4), vectors=torch.tensor([[1.0, -3.0]]), pool="mean")
    close(got, torch.tensor([[0.25], [0.75]]).expand(2, 4) / 4)


@pytest.mark.parametrize("pool", ["max", "mean"])
def test_layout_of_the_backbones_is_kept(pool):
    latent = rand(2, 4, 3, 3).contiguous(memory_format=torch.channels_last)
    output = ModelOutput(torch.zeros(2, 2), torch.zeros(2, 4), latent, latent)
    table = UnitTable("feature", torch.ones(4) > 0, torch.ones(4, 2) > 0, pool)
    got = relevance_start(output, table, torch.tensor([[0, 1], [3, 2]]), torch.ones(2, 2))
    assert got.stride() == latent.stride()


def test_several_units_of_one_cell_add_up():
    latent, vectors = randn(1, 4, 2, 2), randn(3, 4, seed=1)
    maps = torch.zeros(1, 3, 2, 2)
    output = ModelOutput(torch.zeros(1, 2), torch.zeros(1, 3), maps, latent)
    table = UnitTable("prototype", torch.ones(3) > 0, torch.ones(3, 2) > 0, "max", vectors=vectors)
    amounts = torch.tensor([[2.0, -1.0, 0.5]])
    whole = relevance_start(output, table, torch.tensor([[0, 1, 2]]), amounts)
    single = [relevance_start(output, table, torch.tensor([[u]]), amounts[:, u : u + 1]) for u in range(3)]
    close(whole, sum(single))
    close(whole[0, :, 0, 0].sum(), torch.tensor(1.5))
