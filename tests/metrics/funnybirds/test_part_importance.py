import math
from itertools import combinations

import pytest
import torch

from metrics.functional import (
    background_independence,
    controlled_synthetic_data_check,
    covered_parts,
    deletion_check,
    distractibility,
    funnybirds_aggregate,
    heldout_completeness,
    important_parts,
    irrelevant_candidates,
    minimal_sufficient_sets,
    part_dilation,
    part_importance,
    part_thresholds,
    preservation_check,
    select_threshold,
    single_deletion,
    subset_codes,
    target_pairs,
    target_sensitivity,
)

NAN = math.nan
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
TABLE = torch.tensor([[0, 0, 0], [0, 1, 1], [1, 0, 1]])
T = part_thresholds(7)


def draws(seed):
    return torch.Generator().manual_seed(seed)


def scene(seed, images=5, instances=4, parts=3, height=9, width=7):
    """Attribution, masks (some hidden, some overlapping) and parts (some padded) of a batch."""
    g = draws(seed)
    attribution = torch.randn(images, height, width, generator=g)
    masks = torch.rand(images, instances, height, width, generator=g) < 0.15
    masks[0, 1] = False
    part = torch.randint(-1, parts, (images, instances), generator=g)
    return attribution, masks, part


def booleans(seed, *shape):
    return torch.rand(shape, generator=draws(seed)) < 0.5


def variants(seed, classes, kinds=(2, 2, 3, 3, 2)):
    return torch.stack([torch.randint(kind, (classes,), generator=draws(seed + j)) for j, kind in enumerate(kinds)], 1)


def sets_of(rows):
    return [{j for j, there in enumerate(row) if there} for row in rows.tolist()]


def equal(found, expected):
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), equal_nan=True, rtol=0, atol=1e-12)


# -- class tables
def test_sufficient_sets_by_hand():
    assert sets_of(minimal_sufficient_sets(TABLE)[0]) == [{2}, {0, 1}]
    twins = minimal_sufficient_sets(torch.tensor([[0, 1], [0, 1], [0, 2]]))
    assert (twins[:2].any().item(), sets_of(twins[2])) == (False, [{1}])
    assert not minimal_sufficient_sets(torch.zeros(2, 3, dtype=torch.int64)).any()  # one padded row each


@pytest.mark.parametrize("classes", [2, 9, 25])
def test_class_tables_oracle(classes):
    table = variants(classes, classes)
    rows, parts = table.tolist(), range(5)
    sets, (pairs, shared) = minimal_sufficient_sets(table), target_pairs(table)
    order = torch.randperm(classes, generator=draws(0))
    assert torch.equal(minimal_sufficient_sets(table[order]), sets[order])
    for y in range(classes):
        enough = [
            set(chosen) for size in range(6) for chosen in combinations(parts, size)
            if all(any(rows[c][j] != rows[y][j] for j in chosen) for c in range(classes) if c != y)
        ]  # fmt: skip
        minimal = [one for one in enough if not any(other < one for other in enough)]
        assert [one for one in sets_of(sets[y]) if one] == minimal
        common = {c: {j for j in parts if rows[c][j] == rows[y][j]} for c in range(classes) if c != y}
        both = [pair for pair in combinations(common, 2) if all(len(common[c]) == 2 for c in pair)]
        first = next((pair for pair in both if not common[pair[0]] & common[pair[1]]), (-1, -1))
        assert tuple(pairs[y].tolist()) == first
        assert sets_of(shared[y]) == [common.get(c, set()) for c in first]


# -- interface functions
def test_importance_by_hand():
    attribution, masks = torch.zeros(1, 8, 8), torch.zeros(1, 3, 8, 8, dtype=torch.bool)
    attribution[0, 2, 2], attribution[0, 5, 5] = 1, 2
    masks[0, 0, 3, 3] = masks[0, 1, 4, 4] = masks[0, 2, 7, 7] = True
    part = torch.tensor([[0, 0, 1]])
    for dilation, expected in ((5, [[6, 2]]), (3, [[3, 0]]), (1, [[0, 0]])):
        equal(part_importance(attribution, masks, part, 2, dilation), expected)
    assert [part_dilation(height) for height in (1, 64, 153, 154, 224, 255, 256, 358, 359)] == [
        1,
        1,
        1,
        3,
        3,
        3,
        5,
        5,
        7,
    ]
    equal(part_thresholds(80)[[0, 79]], [0.01, 0.5])


@pytest.mark.parametrize("dtype", DTYPES)
def test_importance_oracle(dtype):
    attribution, masks, part = scene(1)
    attribution = attribution.to(dtype)
    masks[2, 0, 0, 0] = masks[2, 0, 8, 6] = True  # at the border
    for dilation in (1, 3, 5):
        reach = dilation // 2
        expected = [[0.0] * 4 for _ in part]
        for b, i, y, x in ((b, i, y, x) for b in range(5) for i in range(4) for y in range(9) for x in range(7)):
            near = masks[b, i, max(0, y - reach) : y + reach + 1, max(0, x - reach) : x + reach + 1]
            if near.any():
                expected[b][part[b, i]] += attribution[b, y, x].item()  # the last column is padding
        found = part_importance(attribution.transpose(1, 2).contiguous().transpose(1, 2), masks, part, 3, dilation)
        equal(found, [row[:3] for row in expected])
        split = [part_importance(*(t[b : b + 1] for t in (attribution, masks, part)), 3, dilation) for b in range(5)]
        assert torch.equal(torch.cat(split), found)


def test_importance_that_is_undefined_and_empty_batches():
    attribution, masks, part = scene(2)
    attribution[3, 0, 0] = NAN  # in no mask, and yet the map is broken
    masks[3, :, 0, 0] = False
    assert part_importance(attribution, masks, part, 3, 1).isnan().all(dim=1).tolist() == [False] * 3 + [True, False]
    assert not important_parts(part_importance(attribution, masks, part, 3), attribution.sum((1, 2)), T)[3].any()
    assert part_importance(attribution[:0], masks[:0], part[:0], 3).shape == (0, 3)
    assert not part_importance(attribution[:1], masks[:1, :0], part[:1, :0], 3).any()
    assert covered_parts(masks[:0, 0], masks[:0], part[:0], T, 3).shape == (0, 7, 3)


def test_important_parts_by_hand():
    importance = torch.tensor([[4.0, 1, 0, -1, 2]])
    assert sets_of(important_parts(importance, torch.tensor([10.0]), torch.tensor([0.05, 0.1]))[0]) == [
        {0, 1, 4},
        {0, 4},
    ]
    # a total of zero or less makes the rule permissive, the more so the higher the threshold
    assert sets_of(important_parts(importance, torch.tensor([0.0]), T)[0]) == [{0, 1, 4}] * 7
    assert sets_of(important_parts(importance, torch.tensor([-10.0]), T)[0][[0, -1]]) == [{0, 1, 2, 4}, {0, 1, 2, 3, 4}]


def test_covered_parts_by_hand():
    region, masks = torch.zeros(1, 4, 4, dtype=torch.bool), torch.zeros(1, 3, 4, 4, dtype=torch.bool)
    region[0, 0, 0] = masks[0, 0, :2] = True  # 1 of 8 pixels; instance 2 is hidden
    masks[0, 1, 3] = True
    for variant, expected in (("fixed", [{0}] + [set()] * 3), ("reference", [{0}] * 3 + [set()])):
        found = covered_parts(region, masks, torch.tensor([[0, 1, 2]]), torch.tensor([0.1, 0.2, 0.3, 0.4]), 3, variant)
        assert sets_of(found[0]) == expected


@pytest.mark.parametrize("seed", range(3))
def test_coverage_oracle_and_nestedness(seed):
    attribution, masks, part = scene(seed)
    region, thresholds = booleans(seed + 9, 5, 9, 7), part_thresholds()
    for variant, factor in (("fixed", 1), ("reference", 3)):
        found = covered_parts(region, masks, part, thresholds, 3, variant)
        for b, (t, threshold) in ((b, pair) for b in range(5) for pair in enumerate(thresholds.tolist())):
            expected = {
                part[b, i].item()
                for i in range(4)
                if factor * (region[b] & masks[b, i]).sum() > threshold * masks[b, i].sum() and part[b, i] >= 0
            }
            assert sets_of(found[b, t : t + 1]) == [expected]
        assert (found[:, 1:] <= found[:, :-1]).all()
    shares = important_parts(part_importance(attribution, masks, part, 3), attribution.sum((1, 2)), thresholds)
    positive = attribution.sum((1, 2)) > 0
    assert (shares[positive, 1:] <= shares[positive, :-1]).all()
    assert (shares[~positive, 1:] >= shares[~positive, :-1]).all()


def test_subset_codes():
    every = torch.tensor([[bool(code >> j & 1) for j in range(5)] for code in range(32)])
    assert subset_codes(every).tolist() == list(range(32))
    assert subset_codes(torch.tensor([True, False, True])).item() == 5


# -- checks
def test_irrelevance_by_hand():
    drops, logit = torch.tensor([[0.4, 0.6, -3, 0.5, NAN]]), torch.tensor([10.0])
    assert irrelevant_candidates(drops, logit).tolist() == [[True, False, True, False, False]]
    assert irrelevant_candidates(drops[:, :4], -logit).tolist() == [[True, False, True, False]]
    assert irrelevant_candidates(torch.zeros(1, 1), torch.zeros(1)).item()  # what changes nothing is irrelevant


def test_background_by_hand():
    drops = torch.tensor([[0.5, 0.1, -2], [9, 0, NAN], [NAN, 0, 0], [0, 0, 0]])
    valid = torch.tensor([[True] * 3, [True, True, False], [True, False, False], [False] * 3])
    independent, objects = background_independence(drops, torch.full((4,), 10.0), valid)
    equal(independent, [2, 1, NAN, 0])
    equal(objects, [3, 2, 1, 0])
    assert background_independence(drops, torch.full((4,), NAN), valid)[0].isnan().all()


def test_sufficient_parts_by_hand():
    parts = torch.tensor([[[True, False, False], [True, True, False], [False] * 3]]).expand(3, -1, -1)
    labels, predictions = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1])
    found = controlled_synthetic_data_check(parts, labels, predictions, minimal_sufficient_sets(TABLE))
    equal(found, [[0.5, 1, 0], [NAN] * 3, [0.5, 1, 0]])  # class 1 has {1} and {0, 2}
    twins = minimal_sufficient_sets(torch.zeros(2, 3, dtype=torch.int64))
    assert controlled_synthetic_data_check(parts, labels, labels, twins).isnan().all()


def test_predictions_by_hand():
    parts, kept = torch.tensor([[[True, False], [False, False]]]), torch.tensor([[9, 4, 9, 4]])
    for check in (preservation_check, deletion_check):
        equal(check(parts, kept, torch.tensor([4])), [[1, 0]])
    kept[0, 0] = -1  # never shown: P = {} keeps nothing
    equal(preservation_check(parts, kept, torch.tensor([4])), [[1, NAN]])


def test_distractibility_by_hand():
    irrelevant = torch.tensor([[True, True, False, True, True], [False] * 5])
    equal(distractibility(torch.tensor([[[True, True, True, False, False]]] * 2), irrelevant), [[0.5], [NAN]])


@pytest.mark.parametrize("seed", range(3))
def test_checks_oracle(seed):
    table = variants(seed, 12)
    sets, parts = minimal_sufficient_sets(table), booleans(seed, 6, 7, 5)
    labels, predictions = (torch.randint(12, (6,), generator=draws(seed + n)) for n in (1, 2))
    predictions[:4] = labels[:4]
    kept = torch.randint(-1, 3, (6, 32), generator=draws(seed + 3))
    irrelevant = booleans(seed + 4, 6, 5)
    csdc = controlled_synthetic_data_check(parts, labels, predictions, sets)
    pc, dc = preservation_check(parts, kept, labels % 3), deletion_check(parts, kept, labels % 3)
    d = distractibility(parts, irrelevant)
    for b, t in ((b, t) for b in range(6) for t in range(7)):
        (p,) = sets_of(parts[b, t : t + 1])
        shares = [len(one & p) / len(one) for one in sets_of(sets[labels[b]]) if one]
        equal(csdc[b, t], max(shares) if shares and labels[b] == predictions[b] else NAN)
        for found, code, wanted in ((pc, sum(2**j for j in p), True), (dc, sum(2**j for j in {*range(5)} - p), False)):
            then = kept[b, code].item()
            equal(found[b, t], NAN if then < 0 else float((then == labels[b] % 3) == wanted))
        (irr,) = sets_of(irrelevant[b : b + 1])
        equal(d[b, t], 1 - len(p & irr) / len(irr) if irr else NAN)
    full, empty = torch.ones(6, 1, 5, dtype=torch.bool), torch.zeros(6, 1, 5, dtype=torch.bool)
    for p, value in ((full, 1), (empty, 0)):  # the ends of the table of the paper
        kept[:, 31], kept[:, 0] = labels % 3, (labels + 1) % 3
        for found in (
            controlled_synthetic_data_check(p, labels, labels, sets),
            preservation_check(p, kept, labels % 3),
        ):
            assert set(found[found.isfinite()].tolist()) == {value}
        assert set(deletion_check(p, kept, labels % 3).flatten().tolist()) == {value}
        assert set(distractibility(p, full[:, 0]).flatten().tolist()) == {1 - value}


def slow_spearman(x, y):
    ranks = [[sum(o < v for o in side) + (sum(o == v for o in side) + 1) / 2 for v in side] for side in (x, y)]
    centred = [[rank - (len(side) + 1) / 2 for rank in side] for side in ranks]
    size = math.sqrt(math.prod(sum(r * r for r in side) for side in centred))
    return sum(a * b for a, b in zip(*centred, strict=True)) / size if size else NAN


@pytest.mark.parametrize("dtype", DTYPES)
def test_single_deletion(dtype):
    importance = torch.tensor([[5, 1, 4, 0, 2], [1, 2, 3, 4, 5], [1, 1, 1, 1, 1], [NAN, 1, 2, 3, 4]], dtype=dtype)
    drops = torch.tensor([[3, 1, 2, 0, 0], [5, 4, 3, 2, 1], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]], dtype=dtype)
    assert single_deletion(importance, drops)[0].item() == pytest.approx(0.910391, abs=1e-6)
    equal(single_deletion(importance, drops)[1:], [0, NAN, NAN])
    assert single_deletion(drops[:3], drops[:3]).tolist() == [1, 1, 1]
    x, y = (torch.randint(-2, 4, (200, 5), generator=draws(seed)).to(dtype) for seed in (1, 2))
    equal(single_deletion(x, y), [(1 + slow_spearman(a, b)) / 2 for a, b in zip(x.tolist(), y.tolist(), strict=True)])
    assert torch.equal(single_deletion(x.exp(), y * 3 - 7).isnan(), single_deletion(x, y).isnan())


def test_target_sensitivity_by_hand():
    importance = torch.tensor([[[4.0, 1, 0, 0, 1], [2, 0, 0, 3, 2]]])
    shared = torch.tensor([[[True, True, False, False, False], [False, False, False, True, True]]])
    drops = torch.tensor([[[3.0, 1], [0, 2]]])
    cases = {  # pair_importance, shared_parts, pair_drops
        1: (importance, shared, drops),
        0: (importance.flip(1), shared, drops),
        0.5: (torch.tensor([[[4.0, 1, 0, 3, 2], [2, 0, 0, 3, 2]]]), shared, drops),
    }
    for value, inputs in cases.items():
        equal(target_sensitivity(*inputs), [value])
    for undefined in (
        (importance, shared, torch.tensor([[[3.0, 3], [0, 2]]])),  # equal drops do not tell the classes apart
        (importance, shared, torch.tensor([[[3.0, 1], [2, 0]]])),
        (importance, shared & False, drops),  # no pair
        (importance * NAN, shared, drops),
    ):
        assert target_sensitivity(*undefined).isnan().all()


def test_random_importance_scores_half():
    g, shared = draws(0), torch.tensor([[True, True, False, False, False], [False, False, True, True, False]])
    sd = single_deletion(torch.randn(4000, 5, generator=g), torch.randn(4000, 5, generator=g))
    drops = torch.eye(2).expand(4000, 2, 2)
    ts = target_sensitivity(torch.randn(4000, 2, 5, generator=g), shared.expand(4000, 2, 5), drops)
    for values in (sd, ts):
        assert abs(values.mean() - 0.5) < 3 * values.std() / math.sqrt(4000)


# -- aggregates
def test_aggregates_by_hand():
    def scores(*values):
        tensors = [torch.tensor(value, dtype=torch.float64) for value in values]
        return funnybirds_aggregate(
            *(t[None] for t in tensors[:4]), *tensors[4:], torch.tensor([0.1], dtype=torch.float64)
        )

    small = scores(0.6, 0.3, 0.6, 0.8, 0.5, 0.5)
    assert (small["completeness"], small["completeness_mean"]) == (pytest.approx(0.65), pytest.approx(0.575))
    published = scores(0.7353, 0.602, 0.532, 0.54372, 0.54592, 0.806)  # ResNet-50, Hesse et al.
    assert round(published["completeness"], 4) == 0.5834
    assert round(published["overall"], 4) == 0.6451
    assert (published["correctness"], published["contrastivity"], published["threshold"]) == (0.54592, 0.806, 0.1)
    nothing_correct = scores(NAN, 0.6, 0.5, 0.5, 0.5, 0.8)
    assert [name for name, value in nothing_correct.items() if value == value] == ["correctness", "contrastivity"]


def test_the_threshold():
    g = draws(3)
    csdc, pc, dc, d = torch.rand(4, 80, generator=g).double()
    total = [(a + b + c) / 3 + e for a, b, c, e in zip(*(x.tolist() for x in (csdc, pc, dc, d)), strict=True)]
    best = total.index(max(total))
    assert select_threshold(csdc, pc, dc, d) == best
    found = funnybirds_aggregate(csdc, pc, dc, d, torch.tensor(0.5), torch.tensor(0.7), part_thresholds())
    assert found["completeness"] == pytest.approx(total[best] / 2)
    assert found["completeness_area"] == pytest.approx(sum(total) / 160)
    assert found["threshold"] == part_thresholds()[best]
    # the first of equal ones, also of those that differ by rounding alone
    tied = torch.tensor([0.1, 0.3, 0.3 + 1e-15], dtype=torch.float64)
    assert select_threshold(tied, tied, tied, tied) == 1
    halves = torch.tensor([[0.2, 0.9, 0.1], [0.3, 0.6, 0.9]]).double()
    assert heldout_completeness(halves, halves, halves, halves) == pytest.approx(0.6)
    assert math.isnan(heldout_completeness(halves * NAN, halves, halves, halves))


def test_errors():
    attribution, masks, part = scene(0)
    parts, label = booleans(0, 2, 3, 4), torch.zeros(2, dtype=torch.int64)
    for call, text in (
        (lambda: part_importance(attribution, masks, part, 3, 2), "`dilation` to be odd and at least 1, but got 2"),
        (lambda: part_importance(attribution, masks, part, 1), "`instance_part` to hold ids below 1"),
        (lambda: part_importance(attribution, masks.float(), part), r"`instance_masks` to be of shape \(5, I, 9, 7\)"),
        (lambda: covered_parts(masks[:, 0], masks, part, T, 3, "paper"), "`variant` to be one of"),
        (lambda: subset_codes(torch.ones(3)), r"`kept` to be of shape \(\.\.\., N\) and dtype bool"),
        (lambda: preservation_check(parts, label[:, None], label), r"`kept_predictions` to be of shape \(2, 16\)"),
        (lambda: controlled_synthetic_data_check(parts, label + 1, label, parts[:1]), "`labels` to hold ids below 1"),
        (lambda: select_threshold(*[torch.tensor([0.5, NAN])] * 4), "1 of them with an undefined check"),
        (lambda: part_thresholds(1), "`number` to be at least 2"),
        (lambda: part_dilation(0), "`height` to be at least 1"),
    ):
        with pytest.raises(ValueError, match=text):
            call()
