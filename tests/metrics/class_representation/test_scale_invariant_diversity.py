import math
from functools import partial

import pytest
import torch

from protometry.metrics import ScaleInvariantDiversity
from protometry.metrics.functional import scale_invariant_diversity
from tests.metrics.class_representation.scores import drawn
from tests.metrics.tester import NAN, Case, MetricTests, mean, nowhere_finite

HEAD = drawn(5, 3, 6).mul(1.5).round()


def record():
    maps = drawn(7, 13, 6, 2, 3)
    maps[1] = NAN
    return {"unit_maps": maps, "logits": drawn(8, 13, 3)}


def slow_diversity(maps, weight, prediction, k):
    units = sorted((u for u in range(len(maps)) if weight[prediction][u] != 0), key=lambda u: -weight[prediction][u])
    if len(units) < k:
        return NAN
    shares = []
    for unit in units[:k]:
        scale = max(sum(map(abs, maps[unit])) / len(maps[unit]), 1e-5)
        exponentials = [math.exp(value / scale) for value in maps[unit]]
        shares.append([value / sum(exponentials) for value in exponentials])
    return sum(max(cell) for cell in zip(*shares, strict=True)) / k


def slow(data):
    rows = zip(data["unit_maps"].double().flatten(2).tolist(), data["logits"].argmax(dim=1).tolist(), strict=True)
    return mean([slow_diversity(maps, HEAD.tolist(), prediction, 4) for maps, prediction in rows])


class TestScaleInvariantDiversity(MetricTests):
    cases = {"sid": Case(partial(ScaleInvariantDiversity, HEAD, 4), record(), slow, nowhere_finite(record()), 13)}


def test_hand_cases():
    maps = torch.tensor([[[2.0, 0.0]], [[0.0, 2.0]]])
    batch, weight = torch.stack([maps, 10 * maps, maps[[0, 0]], 0 * maps]), torch.ones(1, 2)
    values = scale_invariant_diversity(batch, weight, torch.zeros(4, dtype=torch.int64), 2)
    assert values.tolist() == pytest.approx([0.880797, 0.880797, 0.5, 0.5], abs=1e-6)
    peaked = torch.eye(5).view(1, 5, 1, 5) * 1e3  # each alone in its cell
    assert scale_invariant_diversity(peaked, torch.ones(1, 5), torch.tensor([0])).item() > 0.97
    metric = ScaleInvariantDiversity(torch.ones(2, 2), 2)
    metric.update(torch.stack([maps, maps[[0, 0]]]), torch.tensor([[1.0, 0.0], [NAN, 0.0]]))  # the second has no class
    assert metric.compute().item() == pytest.approx(0.880797, abs=1e-6)


def test_slow_oracle(monkeypatch):
    monkeypatch.setattr("protometry.metrics.primitives.chunks.CPU_ELEMENTS", 40)
    maps, predictions = drawn(3, 9, 8, 3, 2), torch.arange(9) % 4
    weight = drawn(4, 4, 8).mul(2).round()  # ties, zeros and negative weights
    weight[2, 3:] = 0
    for k in (1, 2, 5):
        rows = zip(maps.double().flatten(2).tolist(), predictions.tolist(), strict=True)
        expected = [slow_diversity(row, weight.tolist(), prediction, k) for row, prediction in rows]
        values = scale_invariant_diversity(maps, weight, predictions, k)
        assert (values.dtype, values.tolist()) == (torch.float64, pytest.approx(expected, nan_ok=True))
        assert (values.nan_to_num(1) >= 1 / k).all()
    assert values[2].isnan()
    assert scale_invariant_diversity(maps, weight, predictions, 9).isnan().all()  # more features than there are
    assert scale_invariant_diversity(maps[:0], weight, predictions[:0]).shape == (0,)
    maps[1, weight[1].argmax(), 0, 0] = math.inf
    assert scale_invariant_diversity(maps, weight, predictions, 1)[1].isnan()
