from typing import ClassVar

import pytest
import torch

from protometry.metrics import EnergyPointingGame, PointingGame
from protometry.metrics.functional import energy_pointing_game, pointing_game
from tests.metrics.localisation.saliency import (
    CASE,
    DTYPES,
    MASK,
    NO_OBJECT,
    UNDEFINED,
    image_mean,
    record,
    slow_values,
)
from tests.metrics.tester import Case, MetricTests, updated


def peak_hit(values, mask):
    return float(mask[values.index(max(values))])


def energy(values, mask):
    return sum(max(v, 0) for v, m in zip(values, mask, strict=True) if m) / sum(max(v, 0) for v in values)


KERNELS = {pointing_game: peak_hit, energy_pointing_game: energy}


class TestEveryClass(MetricTests):
    cases: ClassVar = {
        "peak": Case(PointingGame, record(), image_mean(peak_hit), NO_OBJECT, 22),
        "energy": Case(EnergyPointingGame, record(), image_mean(energy), NO_OBJECT, 22),
    }

    def test_what_is_undefined_is_counted(self, case):
        assert updated(case.build(), case.record).summary()["skipped"] == UNDEFINED


def test_hand_case():
    assert pointing_game(CASE, MASK).tolist() == [[0]]
    assert energy_pointing_game(CASE, MASK).tolist() == [[0.4]]  # 2 of 5


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_dtypes_and_strides(kernel, dtype):
    for seed in range(3):
        data = record(seed, dtype)
        data["saliency"] = data["saliency"].transpose(2, 3).contiguous().transpose(2, 3)
        values = kernel(**data)
        assert values.dtype == torch.float64
        expected = torch.tensor(slow_values(KERNELS[kernel], data), dtype=torch.float64)
        torch.testing.assert_close(values, expected, rtol=0, atol=1e-12, equal_nan=True)


def test_perfect_worst_and_chance():
    inside = MASK[:, None].float()
    assert [kernel(inside, MASK).item() for kernel in KERNELS] == [1, 1]
    assert [kernel(1 - inside, MASK).item() for kernel in KERNELS] == [0, 0]
    generator = torch.Generator().manual_seed(0)
    saliency, mask = torch.rand(1, 4000, 4, 4, generator=generator), torch.zeros(1, 4, 4, dtype=torch.bool)
    mask[0, 0] = True  # a quarter of the image
    # 4000 hits with a standard deviation of 0.43 each: 0.03 is 4 standard errors
    assert pointing_game(saliency, mask).mean() == pytest.approx(0.25, abs=0.03)
    assert energy_pointing_game(saliency, mask).mean() == pytest.approx(0.25, abs=0.03)


def test_ties_go_to_the_first_pixel():
    tie = torch.tensor([[[[0.0, 2.0, 2.0], [2.0, 0.0, 0.0]]]])
    assert pointing_game(tie, MASK).tolist() == [[0]]
    assert pointing_game(tie.flip(3), MASK).tolist() == [[1]]


@pytest.mark.parametrize("kernel", KERNELS)
def test_undefined_and_errors(kernel):
    for saliency in (torch.full_like(CASE, 2.0), 2 + 1e-6 * CASE, -CASE.abs(), torch.zeros_like(CASE)):
        assert kernel(saliency, MASK).isnan().all()
    for mask in (MASK & False, MASK | True):
        assert kernel(CASE, mask).isnan().all()
    assert kernel(CASE[:0], MASK[:0]).shape == (0, 1)
