import math

import pytest
import torch

from protometry.explanations.explainer import Targets
from protometry.explanations.random_maps import Random
from protometry.explanations.upsample import Upsample
from protometry.lightning_modules.bases.geometry import Layer
from protometry.metrics.primitives.perturbation import keyed_noise
from protometry.metrics.primitives.regions import percentile_mask
from tests.explanations.small_models import MeanPooled, rand

SIZE = (24, 40)
PATTERNS = ["smooth", "pixel"]
KEYS = torch.tensor([7, 2**62 + 1, 0])


def model(size=SIZE, jump=8, channels=5):
    return MeanPooled(torch.nn.Conv2d(3, channels, jump, stride=jump), torch.ones(2, channels),
                      layers=(Layer(jump, jump, 0),), size=size)  # fmt: skip


def maps(ids, keys=KEYS, kind="unit", images=None, **options):
    pictures = torch.zeros(len(keys), 3, *SIZE) if images is None else images
    return Random(**options).attribute(model(), pictures, Targets(kind, torch.tensor(ids)), sample_ids=keys)


@pytest.mark.parametrize("pattern", PATTERNS)
class TestBothPatterns:
    def test_a_unit_keeps_its_map_whatever_its_rank_and_its_image(self, pattern):
        clean = maps([[3, 0, 1]] * 3, pattern=pattern)
        perturbed = maps([[1, 3, -1]] * 3, images=rand(3, 3, *SIZE), pattern=pattern)
        assert torch.equal(clean[:, 0], perturbed[:, 1])
        assert torch.equal(clean[:, 2], perturbed[:, 0])

    def test_units_samples_kinds_and_seeds_have_maps_of_their_own(self, pattern):
        first = maps([[0, 1]] * 3, pattern=pattern)
        every = [*first.flatten(0, 1), *maps([[0, 1]] * 3, kind="class", pattern=pattern).flatten(0, 1),
                 *maps([[0]] * 3, pattern=pattern, seed=1).flatten(0, 1)]  # fmt: skip
        for i, one in enumerate(every):
            assert all(torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1].abs() < 0.9
                       for other in every[:i])  # fmt: skip

    def test_sample_ids_are_needed(self, pattern):
        with pytest.raises(ValueError, match=r"`sample_ids` to be of shape \(3,\), but got None. Pass the batch's"):
            maps([[0]] * 3, pattern=pattern, images=torch.zeros(3, 3, *SIZE), keys=None)
        with pytest.raises(ValueError, match=r"`sample_ids` to be of shape \(3,\), but got \(2,\)"):
            maps([[0]] * 3, pattern=pattern, images=torch.zeros(3, 3, *SIZE), keys=KEYS[:2])

    def test_the_global_generator_is_not_read(self, pattern):
        torch.manual_seed(0)
        first = maps([[0]] * 3, pattern=pattern)
        torch.manual_seed(1)
        assert torch.equal(first, maps([[0]] * 3, pattern=pattern))


def test_expected_overlap_is_the_area_share():
    """Independent pixels: a mask of 7 x 9 of 24 x 40 pixels holds 6.6 % of the region on average."""
    batch = 256
    region = percentile_mask(maps([list(range(5))] * batch, torch.arange(batch), pattern="pixel")).double()
    share = (region[..., 3:10, 20:29].sum((2, 3)) / region.sum((2, 3))).flatten()
    assert abs(share.mean() - 7 * 9 / (24 * 40)) < 4 * share.std() / math.sqrt(len(share))


def test_smooth_is_noise_on_the_latent_grid_enlarged_like_a_similarity_map():
    net, images = model(), torch.zeros(3, 3, *SIZE)
    cells = maps([[2]] * 3, mode="nearest")[:, 0, 4::8, 4::8]  # the grid is 3 x 5
    assert torch.equal(maps([[2]] * 3)[:, 0], Upsample().enlarge(net, cells, images))
    placed = Upsample("bilinear", "geometry").enlarge(net, cells, images)
    assert torch.equal(maps([[2]] * 3, mode="bilinear", placement="geometry")[:, 0], placed)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_no_seed_gives_the_noise_of_a_perturbation(seed):
    ranks = torch.tensor([[0], [0], [0]])
    for other in (0, 1, seed):
        assert not torch.equal(maps([[0]] * 3, pattern="pixel", seed=seed), keyed_noise(KEYS, ranks, SIZE, other))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pattern": "white"}, r"`pattern` to be one of \('smooth', 'pixel'\), but got 'white'"),
        ({"seed": -1}, r"`seed` to lie in \[0, 2\^32\), but got -1"),
        ({"seed": 2**32}, "`seed`"),
        ({"mode": "area"}, "`mode`"),
        ({"placement": "centre"}, "`placement`"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        Random(**options)
