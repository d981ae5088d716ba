import hashlib
import math
from statistics import NormalDist

import pytest
import torch

from protometry.metrics.functional import (
    completeness_perturbation,
    keyed_noise,
    keyed_uniform,
    removal_order,
    shifted_maps,
    without_pixels,
)
from protometry.metrics.primitives import chunks
from protometry.metrics.primitives.perturbation import GAMMA, mix_bits, normal_quantiles

IDS = torch.tensor([3, 2**62 + 11, 7748076420210162913, 0, 1])
RANKS = torch.arange(4).expand(5, 4)
WORD = 2**64 - 1


def slow_mix(word):
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


def slow_words(sample_id, rank, count, seed):
    gamma, key = 0x9E3779B97F4A7C15, 0
    for part in (seed, sample_id, rank):
        key = slow_mix(((key ^ (part & WORD)) + gamma) & WORD)
    return [slow_mix((key + (index + 1) * gamma) & WORD) for index in range(count)]


def fields(word, bits):
    """The signed fields of a word, lowest first."""
    values = [(word >> shift) & (2**bits - 1) for shift in range(0, 64, bits)]
    return [value - 2**bits if value >= 2 ** (bits - 1) else value for value in values]


def slow_uniform(sample_id, rank, count, seed):
    words = slow_words(sample_id, rank, count, seed)
    return [(field >> 8) / 2**23 for word in words for field in fields(word, 32)][:count]


def slow_noise(sample_id, rank, count, seed):
    words = slow_words(sample_id, rank, count, seed)
    shares = [(field + 2**15 + 0.5) / 2**16 for word in words for field in fields(word, 16)]
    return [NormalDist().inv_cdf(share) for share in shares[:count]]


def test_published_sequence_of_splitmix64():
    words = mix_bits(1234567 + torch.arange(1, 6) * GAMMA)
    expected = [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
    ]  # fmt: skip
    assert [word & WORD for word in words.tolist()] == expected


@pytest.mark.parametrize(("kernel", "oracle"), [(keyed_noise, slow_noise), (keyed_uniform, slow_uniform)])
class TestKeyed:
    @pytest.mark.parametrize("seed", [0, 1, 2**40, -5])
    @pytest.mark.parametrize("shape", [(7,), (3, 2, 3), (), (0,)])
    def test_slow_oracle(self, kernel, oracle, seed, shape):
        values = kernel(IDS, RANKS, shape, seed)
        assert values.shape == (5, 4, *shape)
        assert values.dtype == torch.float32
        for image, sample_id in enumerate(IDS.tolist()):
            for rank in range(4):
                expected = oracle(sample_id, rank, math.prod(shape), seed)
                # half the spacing of float32 at 4.33, the largest value
                assert values[image, rank].flatten().tolist() == pytest.approx(expected, abs=2**-22)

    def test_global_generator_is_neither_read_nor_moved(self, kernel, oracle):
        state = torch.random.get_rng_state()
        first = kernel(IDS, RANKS, (5,))
        assert torch.equal(torch.random.get_rng_state(), state)
        torch.rand(3)
        assert torch.equal(kernel(IDS, RANKS, (5,)), first)
        with torch.inference_mode():
            assert torch.equal(kernel(IDS, RANKS, (5,)), first)

    def test_no_image_and_no_unit(self, kernel, oracle):
        assert kernel(IDS[:0], RANKS[:0], (3, 4)).shape == (0, 4, 3, 4)
        assert kernel(IDS, RANKS[:, :0], (3, 4)).shape == (5, 0, 3, 4)
        assert kernel(IDS[:0], torch.arange(4).expand(0, 4), ()).shape == (0, 4)  # with strides of 0


class TestDistribution:
    # 300 000 draws; bounds at about 5 standard errors
    def test_table_of_all_values(self):
        table = normal_quantiles(torch.device("cpu")).double()
        assert torch.equal(table, -table.flip(0))
        assert (table.diff() > 0).all()
        moments = [table.pow(power).mean().item() for power in (2, 4)]
        assert moments == pytest.approx([0.99998, 2.9991], abs=5e-5)  # 1 and 3 without the rounding to 16 bits
        assert table[[0, 2**15, 2**16 - 1]].tolist() == pytest.approx([-4.3249, 1.9124e-5, 4.3249], abs=1e-4)


def images(batch=4, dtype=torch.float32):
    return torch.rand(batch, 3, 6, 8, generator=torch.Generator().manual_seed(0)).to(dtype)


class TestCompleteness:
    BOXES = torch.tensor([[1, 2, 3, 2], [0, 0, 7, 5], [0, 0, -1, -1], [7, 5, 7, 5]]).expand(4, 4, 4)

    def test_noise_outside_and_nothing_inside(self):
        clean, ids = images(), torch.arange(4)
        noisy = completeness_perturbation(clean, self.BOXES, ids, sigma=0.5, seed=3)
        noise = keyed_noise(ids, torch.arange(4).expand(4, 4), (3, 6, 8), seed=3)
        expected = (clean[:, None] + 0.5 * noise).clamp(0, 1)
        expected[:, 0, :, 2, 1:4] = clean[:, :, 2, 1:4]
        expected[:, 1] = clean
        expected[:, 3, :, 5, 7] = clean[:, :, 5, 7]
        assert torch.equal(noisy, expected)
        assert not torch.equal(noisy[:, 0], noisy[:, 2])

    def test_golden_bits(self):
        # any change of the generator, the order of elements or the arithmetic shows here
        clean = (torch.arange(2 * 3 * 6 * 8).view(2, 3, 6, 8) % 32) / 32
        boxes = torch.tensor([[[1, 2, 3, 2], [0, 0, 4, 4]]]).expand(2, 2, 4)
        noisy = completeness_perturbation(clean, boxes, torch.tensor([7748076420210162913, 1]), seed=5)
        digest = hashlib.sha256(noisy.contiguous().numpy().tobytes()).hexdigest()
        assert digest == "08ccf6e45be6afd10e1f6a2f9e2dae96b857e2b21a1115583942f61236c85fff"

    @pytest.mark.parametrize("at_once", [1, 2 * 4 * 144, 3 * 4 * 144 + 1])
    def test_size_of_chunks(self, monkeypatch, at_once):
        # one image is 4 units x 144 values: chunks of 1, 2 and 3 of the 4 images
        whole = completeness_perturbation(images(), self.BOXES, torch.arange(4))
        monkeypatch.setattr(chunks, "CPU_ELEMENTS", at_once)
        assert torch.equal(completeness_perturbation(images(), self.BOXES, torch.arange(4)), whole)

    def test_no_unit(self):
        assert completeness_perturbation(images(), self.BOXES[:, :0], torch.arange(4)).shape == (4, 0, 3, 6, 8)

    def test_normalised_units_unclamped(self):
        std = torch.tensor([0.2, 0.4, 0.1]).view(3, 1, 1)
        ids = torch.arange(4)
        noisy = completeness_perturbation(images(), self.BOXES, ids, sigma=5 * std, clamp=False)
        noise = keyed_noise(ids, torch.arange(4).expand(4, 4), (3, 6, 8))
        assert torch.allclose(noisy[:, 2], images() + 5 * std * noise[:, 2])
        assert noisy.min() < 0
        assert noisy.max() > 1

    def test_values_inside_are_never_clamped(self):
        clean = images() + 1
        noisy = completeness_perturbation(clean, self.BOXES, torch.arange(4))
        assert torch.equal(noisy[:, 1], clean)
        assert noisy[:, 2].max() == 1

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_dtypes(self, dtype):
        noisy = completeness_perturbation(images(dtype=dtype), self.BOXES, torch.arange(4))
        assert noisy.dtype == dtype
        assert torch.equal(noisy[:, 1], images(dtype=dtype))
        reference = completeness_perturbation(images(), self.BOXES, torch.arange(4))
        # image and result are rounded to the dtype, the reference to float32
        roundings = 2 * max(torch.finfo(kind).eps / 2 for kind in (dtype, torch.float32))
        assert torch.allclose(noisy.float(), reference, rtol=0, atol=roundings)

    def test_layout_and_empty(self):
        clean, ids = images().mT.contiguous().mT, torch.arange(4)
        whole = completeness_perturbation(images(), self.BOXES, ids)
        assert torch.equal(completeness_perturbation(clean, self.BOXES, ids), whole)
        assert completeness_perturbation(images(0), self.BOXES[:0], ids[:0]).shape == (0, 4, 3, 6, 8)


def test_shifted_maps_move_all_maps_of_an_image_alike_and_uniformly():
    maps, ids = torch.arange(42.0).view(1, 2, 3, 7).expand(600, -1, -1, -1), torch.arange(600)
    moved = shifted_maps(maps, ids, seed=3)
    places = torch.zeros(3, 7)
    for image in range(600):
        y, x = divmod(int((moved[image, 0] == 0).nonzero()[0] @ torch.tensor([7, 1])), 7)
        assert torch.equal(moved[image], maps[image].roll((y, x), dims=(1, 2)))
        places[y, x] += 1
    assert abs(places - 600 / 21).max() < 4.5 * math.sqrt(600 / 21)  # 21 counts, each within 4.5 standard deviations
    assert torch.equal(shifted_maps(maps[5:7], ids[5:7], seed=3), moved[5:7])
    assert not torch.equal(shifted_maps(maps, ids, seed=4), moved)


@pytest.mark.parametrize("share", [0, 0.1, 0.25, 1])
def test_the_first_pixels_of_an_order_become_the_mean_colour(share):
    generator = torch.Generator().manual_seed(0)
    images, maps = torch.rand(2, 3, 5, 8, generator=generator), torch.rand(2, 4, 5, 8, generator=generator).round()
    order = removal_order(maps)
    assert order.flatten(2).sort().values.eq(torch.arange(40)).all()
    shown = without_pixels(images, order, share)
    for image, unit in ((i, u) for i in range(2) for u in range(4)):
        cells = maps[image, unit].flatten().tolist()
        gone = sorted(range(40), key=lambda cell: (-cells[cell], cell))[: int(40 * share)]
        expected = images[image].clone().flatten(1)
        expected[:, gone] = images[image].mean(dim=(1, 2))[:, None]
        torch.testing.assert_close(shown[image, unit].flatten(1), expected)
