"""The prototype layer: distances, similarities, exact hits, sources."""

from __future__ import annotations

import io
import math

import pytest
import torch
from torch.nn import functional as F

from protometry.lightning_modules.contract import empty_sources
from protometry.lightning_modules.heads.prototypes import (
    BLOCK,
    PrototypeLayer,
    focal_similarity,
    nearest_distance,
)

close = torch.testing.assert_close


def make(units=5, channels=16, **options) -> PrototypeLayer:
    torch.manual_seed(0)
    return PrototypeLayer(units, channels, **options).eval()


def latents(channels=16, batch=3, size=(2, 4), seed=1):
    return torch.rand(batch, channels, *size, generator=torch.Generator().manual_seed(seed))


def slow_distances(layer, latent):
    """Cell by cell in float64."""
    out = torch.zeros(len(latent), len(layer.vectors), *latent.shape[2:], dtype=torch.float64)
    for b, u, i, j in torch.cartesian_prod(*map(torch.arange, out.shape)).tolist():
        z, p = latent[b, :, i, j].double(), layer.vectors[u].detach().double()
        out[b, u, i, j] = 1 - z @ p / (z.norm() * p.norm()) if layer.similarity == "cosine" else ((z - p) ** 2).sum()
    return out


# -- distance --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("similarity", ["l2_log", "cosine"])
@pytest.mark.parametrize(("channels", "batch", "size"), [(1, 1, (1, 1)), (16, 3, (2, 4)), (128, 2, (3, 1))])
def test_both_forms_follow_the_definition(similarity, channels, batch, size):
    layer, latent = make(channels=channels, similarity=similarity), latents(channels, batch, size)
    reference = slow_distances(layer, latent)
    for exact in (True, False):
        distances = layer.distances(latent, exact=exact)
        assert distances.dtype == torch.float32
        assert (distances >= 0).all()
        close(distances.double(), reference, rtol=1e-4, atol=1e-5 * channels**0.5)


def test_evaluation_is_exact_and_training_rounds():
    layer, latent = make(channels=256), latents(256)
    exact, rounded = layer.distances(latent, exact=True), layer.distances(latent, exact=False)
    close(exact.double(), slow_distances(layer, latent), rtol=1e-6, atol=0.0)
    assert not torch.equal(exact, rounded)
    assert torch.equal(layer.distances(latent), exact)
    assert torch.equal(layer.train().distances(latent), rounded)
    assert torch.equal(layer.distances(latent, exact=True), exact)


@pytest.mark.parametrize("similarity", ["l2_log", "cosine", "exp"])
def test_blocks_are_the_whole(similarity):
    """Prototypes compared in three blocks, alone, by name, and on other numbers of images have the same bits."""
    layer, latent = make(2 * BLOCK + 3, similarity=similarity), latents(batch=5)
    maps = layer.maps(latent)
    assert torch.equal(maps, layer.similarities(layer.distances(latent)))
    assert torch.equal(maps[:2], layer.maps(latent[:2]))
    chosen = torch.tensor([[2 * BLOCK + 2, 0], [BLOCK, BLOCK - 1], [1, 1], [5, 3], [2, 7]])
    close(layer.maps(latent, chosen), maps[torch.arange(5)[:, None], chosen], rtol=1e-6, atol=1e-6)
    if similarity != "exp":
        close(layer.distances(latent).double(), slow_distances(layer, latent), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("step", [1e-2, 1e-3, 1e-4])
def test_cells_close_to_a_prototype_keep_their_distances(step):
    """Where the expanded form in float32 is 0 or noise; the prototype itself is among the cells."""
    layer = make(channels=256, epsilon=1e-14)
    latent = layer.vectors.detach()[:1, :, None, None] + step * torch.randn(4, 256, 5, 5)
    latent[0, :, 2, 3] = layer.vectors.detach()[0]
    distances = layer.distances(latent)[:, 0]
    close(distances.double(), slow_distances(layer, latent)[:, 0], rtol=1e-4, atol=0.0)
    assert distances[0, 2, 3] == 0
    assert layer.similarities(distances).amax().item() == pytest.approx(math.log(1e14), abs=1e-5)


def test_what_is_no_number_is_no_hit():
    latent = latents(256)
    latent[1, 3] = math.nan
    assert make(channels=256).distances(latent).isnan().all((1, 2, 3)).tolist() == [False, True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize(("similarity", "best"), [("l2_log", math.log(1e4)), ("cosine", 1.0)])
@pytest.mark.parametrize("channels", [8, 256])
def test_an_exact_hit_scores_the_maximum(channels, similarity, best, autocast, dtype):
    """Also under autocast and for a latent that autocast has rounded; the expanded form would reach 8.9 only."""
    layer, latent = make(channels=channels, similarity=similarity), latents(channels).to(dtype)
    with torch.no_grad():
        layer.vectors[2] = latent[1, :, 0, 3].float()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        distances = layer.distances(latent)
        similarities = layer.similarities(distances)
    assert distances[1, 2, 0, 3].item() <= 1e-6
    assert similarities[1, 2, 0, 3].item() == pytest.approx(best, abs=1e-6)
    assert similarities[1, 2].flatten().argmax() == 3
    assert similarities.dtype == torch.float32


def test_training_distances_ignore_autocast():
    layer, latent = make(channels=256).train(), latents(256)
    plain = layer.distances(latent)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer.distances(latent), plain)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("similarity", ["l2_log", "cosine"])
def test_gradients_are_finite_at_an_exact_hit(similarity, training):
    layer = make(similarity=similarity).train(training)
    latent = layer.vectors.detach()[:1, :, None, None].repeat(1, 1, 2, 2).requires_grad_()
    layer.similarities(layer.distances(latent)).sum().backward()
    assert latent.grad.isfinite().all()
    assert layer.vectors.grad.isfinite().all()
    assert (layer.vectors.grad[1:] != 0).any()


# -- similarity ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("epsilon", "distance", "expected"), [
    (1e-4, 0.0, 9.210340),  # ln 1e4
    (1e-4, 1.0, 0.693047),  # ln(2 / 1.0001)
    (1e-4, 1e4, 0.000100),  # ln(10001 / 10000.0001)
    (1e-14, 0.0, 32.236191),  # ln 1e14
])  # fmt: skip
def test_log_similarity_by_hand(epsilon, distance, expected):
    layer = make(epsilon=epsilon)
    assert layer.similarities(torch.tensor(distance)).item() == pytest.approx(expected, abs=1e-6)


def test_cosine_similarity_by_hand():
    """p = (1, 0): cos with (2, 0) is 1, with (3, 3) is 1/sqrt 2, with (0, 1) is 0, with (-1, 0) is -1, cut to 0."""
    layer = make(1, 2, similarity="cosine")
    with torch.no_grad():
        layer.vectors.copy_(torch.tensor([[5.0, 0.0]]))
    latent = torch.tensor([[2.0, 3.0, 0.0, -1.0], [0.0, 3.0, 1.0, 0.0]])[None, :, None]
    for direct in (True, False):
        distances = layer.distances(latent, direct)
        close(distances.flatten(), torch.tensor([0.0, 1 - 0.5**0.5, 1.0, 2.0]), rtol=1e-5, atol=1e-6)
        close(layer.similarities(distances).flatten(), torch.tensor([1.0, 0.5**0.5, 0.0, 0.0]), rtol=1e-5, atol=1e-6)


def test_exponential_of_a_cosine_by_hand():
    """cos of (1, 0) with (2, 0) is 1, with (3, 3) is 1/sqrt 2."""
    layer = make(1, 2, similarity="cosine_exp")
    with torch.no_grad():
        layer.vectors.copy_(torch.tensor([[5.0, 0.0]]))
    maps = layer.maps(torch.tensor([[2.0, 3.0], [0.0, 3.0]])[None, :, None])
    close(maps.flatten(), torch.tensor([1.0, math.exp(10 * (0.5**0.5 - 1))]))


def test_a_metric_applies_to_cells_and_prototypes():
    layer, features = make(similarity="cosine", metric=True), latents()
    assert torch.equal(layer.embed(features), features)
    torch.nn.init.normal_(layer.metric.weight)
    matrix, expected = layer.metric.weight[:, :, 0, 0].detach().double(), make(similarity="cosine")
    expected.vectors.data = (layer.vectors.detach().double() @ matrix.T).float()
    latent = layer.embed(features).detach()
    close(latent.double(), torch.einsum("dc,bchw->bdhw", matrix, features.double()), rtol=1e-4, atol=1e-4)
    close(layer.distances(latent).double(), slow_distances(expected, latent), rtol=1e-4, atol=1e-5)
    patches = latent[0].flatten(1).T[:5]
    layer.load_patches(patches, torch.ones(5, dtype=torch.bool), empty_sources(5))
    close(layer.embedded(), patches, rtol=1e-3, atol=1e-4)
    close(layer.vectors, features[0].flatten(1).T[:5], rtol=1e-3, atol=1e-3)


def test_similarity_falls_with_distance():
    grid = torch.linspace(0, 4, 100)
    for similarity in ("l2_log", "cosine", "cosine_exp"):
        values = make(similarity=similarity).similarities(grid)
        assert (values.diff() <= 0).all()
        assert (values >= 0).all()


def test_ties_go_to_the_first_cell():
    layer = make()
    latent = latents(batch=1, size=(3, 3))
    latent[0, :, 1, 0] = latent[0, :, 2, 1] = latent[0, :, 0, 2] = layer.vectors[0].detach()
    maps = layer.similarities(layer.distances(latent))
    assert maps[0, 0].flatten().max(0).indices == 2


# -- patches and sources ---------------------------------------------------------------------------------------------
def load(layer):
    valid = torch.tensor([True, False, True, False, True])
    table = empty_sources(5)
    table.sample_key[valid], table.row[valid] = torch.tensor([7, 2**62, 9]), 1
    table.sample_id[:] = ["a", "", "b", "", "c"]
    layer.load_patches(torch.full((5, 16), 0.25), valid, table)
    return valid


def test_only_valid_patches_are_copied():
    layer = make()
    before = layer.vectors.detach().clone()
    assert layer.source() is None
    valid = load(layer)
    assert (layer.vectors[valid] == 0.25).all()
    assert torch.equal(layer.vectors[~valid], before[~valid])
    source = layer.source()
    assert source.sample_id == ["a", "", "b", "", "c"]
    assert source.sample_key.tolist() == [7, -1, 2**62, -1, 9]
    assert torch.equal(source.found, valid)
    assert layer.vectors.requires_grad


def test_sources_survive_a_file():
    layer, again, file = make(), PrototypeLayer(5, 16), io.BytesIO()
    load(layer)
    layer.active[3] = False
    torch.save(layer.state_dict(), file)
    file.seek(0)
    again.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(again.vectors, layer.vectors)
    assert again.active.tolist() == [True, True, True, False, True]
    assert again.source().sample_id == layer.source().sample_id
    assert torch.equal(again.source().sample_key, layer.source().sample_key)


@pytest.mark.parametrize("lost", ["active", "projected", "sample_key", "_extra_state"])
def test_nothing_that_decides_may_be_missing(lost):
    state = make().state_dict()
    state["renamed"] = state.pop(lost)
    with pytest.raises(RuntimeError, match=rf"(?s)Missing key.*{lost}.*Unexpected key.*renamed"):
        make().load_state_dict(state)


def test_cosine_ignores_length():
    layer, latent = make(similarity="cosine"), latents()
    close(layer.distances(latent * 7), layer.distances(latent), rtol=1e-4, atol=1e-6)
    close(1 - layer.distances(latent)[0, 0, 0, 0], F.cosine_similarity(latent[0, :, 0, 0], layer.vectors[0], dim=0))


def test_fixed_prototypes_score_the_same_in_training_and_evaluation():
    torch.manual_seed(0)
    layer = PrototypeLayer(3, 64, epsilon=1e-14)
    latent = torch.rand(2, 64, 4, 4)
    layer.vectors.data[:] = latent[0, :, 0, :3].T
    layer.vectors.requires_grad_(False)
    trained = layer.train().similarities(layer.distances(latent))
    evaluated = layer.eval().similarities(layer.distances(latent))
    assert torch.equal(trained, evaluated)
    assert trained.amax((2, 3))[0] == pytest.approx([32.236] * 3, abs=1e-2)


@pytest.mark.parametrize("seed", range(3))
def test_focal_similarity_by_definition(seed):
    maps = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(seed))
    for image in range(2):
        for unit in range(3):
            cells = maps[image, unit].flatten().tolist()
            expected = max(cells) - sum(cells) / len(cells)
            assert focal_similarity(maps)[image, unit].item() == pytest.approx(expected, abs=1e-5)
    close(focal_similarity(maps + 7), focal_similarity(maps))


@pytest.mark.parametrize("similarity", ["l2_log", "cosine"])
def test_the_similarity_of_the_nearest_cell_is_the_largest_and_has_its_gradient(similarity):
    """The formula of the authors pools the similarities; in training, the distance is pooled before the logarithm."""
    layer = make(channels=16, similarity=similarity).train()
    weight = torch.rand(5, len(layer.vectors), generator=torch.Generator().manual_seed(1)) - 0.5
    gradients = []
    for pool_first in (True, False):
        latent = torch.rand(5, 16, 6, 7, generator=torch.Generator().manual_seed(2)).requires_grad_()
        distances = layer.distances(latent)
        pooled = nearest_distance(distances), layer.similarities(distances).amax(dim=(2, 3))
        close(layer.similarities(pooled[0]), pooled[1], rtol=1e-6, atol=1e-6)
        scores = layer.similarities(pooled[0]) if pool_first else pooled[1]
        gradients.append(torch.autograd.grad((scores * weight).sum(), [latent, layer.vectors]))
    for new, old in zip(*gradients, strict=True):
        close(new, old, rtol=1e-5, atol=1e-5 * old.abs().max().item())  # sums of 32-bit numbers in another order


def test_the_gradient_of_the_nearest_distance_is_that_of_differences():
    layer = make()
    distances = torch.rand(2, 3, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda d: layer.similarities(nearest_distance(d)), distances)


def test_of_equally_near_cells_the_first_learns():
    distances = torch.full((1, 2, 2, 3), 2.0)
    distances[0, 1, 0, 2] = distances[0, 1, 1, 1] = 1.0
    distances.requires_grad_()
    nearest_distance(distances).sum().backward()
    assert distances.grad[0, 0].flatten().tolist() == [1, 0, 0, 0, 0, 0]
    assert distances.grad[0, 1].flatten().tolist() == [0, 0, 1, 0, 0, 0]
