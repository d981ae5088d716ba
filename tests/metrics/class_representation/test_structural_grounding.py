import itertools
import math
import pickle

import pytest
import torch

from protometry.metrics import StructuralGrounding
from protometry.metrics.functional import similar_class_pairs, structural_grounding
from tests.metrics.class_representation.scores import drawn
from tests.metrics.tester import DTYPES, NAN, check_attributes, same_summaries

ATTRIBUTES = torch.tensor([[1.0, 0.0], [4.0, 3.0], [0.0, 1.0]])
WEIGHT = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 0.0, 1.0]])


def slow_cosine(one, other):
    lengths = [math.sqrt(sum(x * x for x in row)) for row in (one, other)]
    return NAN if 0 in lengths else sum(x * y for x, y in zip(one, other, strict=True)) / lengths[0] / lengths[1]


def slow_grounding(weight, attributes, pairs):
    every = [(a, b) for a in range(len(attributes)) for b in range(a + 1, len(attributes))]
    truth = {pair: slow_cosine(attributes[pair[0]], attributes[pair[1]]) for pair in every}
    model = {pair: slow_cosine(weight[pair[0]], weight[pair[1]]) for pair in every}
    chosen = sorted(every, key=lambda pair: -truth[pair])[:pairs]
    kept = [pair for pair in chosen if not math.isnan(model[pair])]
    return sum(model[pair] for pair in kept) / sum(truth[pair] for pair in kept) if kept else NAN


def test_hand_cases():
    # cosines of the attributes: 0.8, 0, 0.6; of the weights 1/2, 0, 1/sqrt 2
    assert similar_class_pairs(ATTRIBUTES).tolist() == [[0, 1], [1, 2], [0, 2]]
    zero_row = WEIGHT * torch.tensor([[1.0], [1.0], [0.0]])
    for weight, value in (
        (WEIGHT, (0.5 + math.sqrt(0.5)) / 1.4),
        (ATTRIBUTES, 1),
        (torch.eye(3), 0),
        (torch.ones(3, 2), 2 / 1.4),
        (zero_row, 0.5 / 0.8),
        (torch.zeros(3, 2), NAN),
    ):
        assert structural_grounding(weight, ATTRIBUTES, 2).item() == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_slow_oracle(dtype):
    for seed in range(3):
        weight, attributes = drawn(seed, 9, 7).to(dtype), drawn(seed + 9, 9, 12).abs().to(dtype)
        weight[4] = 0
        for pairs in (1, 10, 100):
            expected = slow_grounding(weight.double().tolist(), attributes.double().tolist(), pairs)
            value = structural_grounding(weight.T.contiguous().T, attributes, pairs)
            assert (value.dtype, value.item()) == (torch.float64, pytest.approx(expected, nan_ok=True))


@pytest.mark.parametrize("pairs", [1, 2, 3, 5, 6])
def test_ties_count_with_the_chance_of_their_choice(pairs):
    """Over all choices among the five pairs that tie below (0, 1), and in any order of the classes."""
    attributes = torch.tensor([[1.0, 1, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]])
    weight = drawn(0, 4, 6).double()
    tied = [(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    cosines = {pair: slow_cosine(*(weight[c].tolist() for c in pair)) for pair in [(0, 1), *tied]}
    choices = list(itertools.combinations(tied, pairs - 1))
    expected = [(cosines[0, 1] + sum(cosines[pair] for pair in chosen)) / (1 + len(chosen) / 2) for chosen in choices]
    for order in itertools.permutations(range(4)):
        actual = structural_grounding(weight[list(order)], attributes[list(order)], pairs).item()
        assert actual == pytest.approx(sum(expected) / len(expected))


def test_equal_pairs_come_in_row_major_order_at_any_scale():
    alike = (torch.eye(4).double() + 0.3) * torch.tensor([[1], [0.7], [0.1], [31]]).double()
    first = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    for scale in (1, 100, 1 / 3):
        assert similar_class_pairs(alike * scale).tolist() == first
    alike[1] = 0  # without attributes: last
    assert similar_class_pairs(alike).tolist() == [[0, 2], [0, 3], [2, 3], [0, 1], [1, 2], [1, 3]]


def share_grounding(rank, world_size, metric):
    if rank == 0:
        metric.update(WEIGHT)
    return metric.summary()


def test_the_metric(ddp_pool):
    metric = StructuralGrounding(ATTRIBUTES, 2)
    check_attributes(metric)
    summary = {"value": (0.5 + math.sqrt(0.5)) / 1.4, "low": NAN, "high": NAN, "n": 1, "skipped": 0}
    assert metric(WEIGHT).item() == pytest.approx(summary["value"])
    for copy in (metric, metric.clone(), pickle.loads(pickle.dumps(metric)), metric.half()):
        assert copy.summary() == pytest.approx(summary, nan_ok=True)
    for shared in ddp_pool.run(share_grounding, StructuralGrounding(ATTRIBUTES, 2)):
        assert same_summaries(shared, metric.summary())
    # without the third unit class 2 has no weights, and the pair (1, 2) is left out: cosine 1 / sqrt 2 of (0, 1)
    metric.update(WEIGHT, torch.tensor([True, True, False]))
    summary |= {"value": math.sqrt(0.5) / 0.8, "skipped": 1}
    assert metric.summary() == pytest.approx(summary, nan_ok=True)
    metric.update(0 * WEIGHT)
    with pytest.warns(UserWarning, match="among 2 entries"):
        assert metric.compute().isnan()
    assert (metric.summary()["n"], metric.summary()["skipped"]) == (0, 2)
